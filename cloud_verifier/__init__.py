"""The cloud verifier: a server that holds the target model and answers drafts with verdicts.

Its words are specdec's. Edges and it meet only on the wire; it imports nothing of the robot.
"""

from cloud_verifier.config import ServerConfig
from cloud_verifier.errors import VerifierError
from cloud_verifier.server import serve

__all__ = ["ServerConfig", "VerifierError", "serve"]
