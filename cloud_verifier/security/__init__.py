# SPDX-License-Identifier: Apache-2.0
"""Who may use the verifier: a folder of keys, and an authenticator that admits connections by their key.

Terms: a *key* is an edge's (one file, one client, one name). The *key ring* is the folder with the server's own key and
a record of every client. A *holder* is the client whose public key a connection has proved to own. This package knows
nothing of sessions and models, and never logs a secret or anything that a client sends.
"""
