# SPDX-License-Identifier: Apache-2.0
"""Evaluation: the files of a run, and the figures computed from them.

A *run* is a folder with `results.json`; a *trace* is the full recording of one episode; a *decision* is one answer of
the model (or one move of the exploration policy). This package imports only `specdec`. It never starts a process, uses
ROS or changes a recorded figure.
"""
