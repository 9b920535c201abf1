# SPDX-License-Identifier: Apache-2.0
"""Several verifiers as one: Ray places, restarts and scales *replicas*; a *directory* assigns edges to replicas.

A replica is a whole `cloud_verifier` process with its own address. Edges talk to it directly: answers do not pass
through Ray. Terms: an edge is *assigned* to a replica, and *active* while it has an answer in progress. Two replicas of
one *identity* give the same answers, token for token. A *generation* is the configuration that one `up` or `upgrade`
wants for all replicas.
"""
