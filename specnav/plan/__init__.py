# SPDX-License-Identifier: Apache-2.0
"""`specnav plan`: what a pair of models needs, before anything is loaded."""
