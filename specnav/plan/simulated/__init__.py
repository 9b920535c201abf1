# SPDX-License-Identifier: Apache-2.0
"""A fleet simulated: robots, their links, a directory, and verifiers that serve them in shared forwards.

`simulate` plays one fleet through, `study` asks it what a fleet needs. Everything here is a model: nothing is measured,
and what it is calibrated from is named in every result. Milliseconds; needs no language model.
"""
