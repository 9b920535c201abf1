# SPDX-License-Identifier: Apache-2.0
"""Isolation: library calls on untrusted input, in processes of their own that have limits and can be killed.

A compiler of grammars or a decoder of pictures cannot be interrupted, and its input decides how long it takes. It runs
in a *worker*: a process that holds nothing of other clients, with bounds on its CPU time, its elapsed time and its
memory. A worker is forked from a *launcher*, a process that has imported everything already, so that a killed one is
replaced within milliseconds. Threads that serve everyone hand a job over and get a future; they never wait for it.
What comes back is parsed as data (msgspec), never unpickled: a worker that was taken over cannot run code here.
"""
