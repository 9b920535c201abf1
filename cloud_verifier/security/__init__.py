# SPDX-License-Identifier: Apache-2.0
"""Who may use the verifier: a folder of keys, and the door that admits the connections of those who hold one.

Its words: a *key* is an edge's (one file, one client, one name); the *key ring* is the folder with the server's own key
and what is known of every client; a *holder* is the client whose public key a connection has proved to own. The room
knows nothing of sessions and models, and never writes a secret or anything a client says into a log.
"""
