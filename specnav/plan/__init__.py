# SPDX-License-Identifier: Apache-2.0
"""`specnav plan`: memory and GPUs that a pair of models needs, computed without loading it."""
