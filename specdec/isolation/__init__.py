# SPDX-License-Identifier: Apache-2.0
"""Isolation: library calls on untrusted input run in separate, limited processes that can be killed.

A grammar compiler or picture decoder cannot be interrupted, and its input decides how long it takes. It therefore runs
in a *worker*: a process without other clients' data, with bounds on CPU time, elapsed time and memory. A worker is
forked from a *launcher*, a process that has imported everything already, so a killed worker is replaced within
milliseconds. Shared threads submit a job and get a future; they never wait for it. Replies are parsed as data
(msgspec), never unpickled: a compromised worker cannot run code here.
"""
