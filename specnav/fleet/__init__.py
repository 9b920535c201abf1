# SPDX-License-Identifier: Apache-2.0
"""Many verifiers as one: Ray places, restarts and scales *replicas*, and a *directory* tells edges which one to use.

A replica is a whole verifier of `cloud_verifier`, a process with its own address; edges talk to it directly, and Ray
carries nothing of an answer. Words: an edge is *assigned* to a replica, *active* while it has an answer in progress;
two replicas of one *identity* give the same answers, token for token; a *generation* is what one `up` or `upgrade`
wants all replicas to be.
"""
