# SPDX-License-Identifier: Apache-2.0
"""What `auto` loses against the best fixed method: the real edge on a simulated clock, in random worlds."""
