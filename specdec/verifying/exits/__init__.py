# SPDX-License-Identifier: Apache-2.0
"""Early exits: predictions of the target's next token from the hidden state after one of its inner layers.

An *exit* is a small adapter after a layer that feeds the target's own final norm and LM head, which all exits share.
Its logits are used only for hints, never for tokens. Layers count from 0, as in `LayerObserver`. The last layer needs
no exit.
"""

from specdec.verifying.exits.adapters import ExitAdapters
from specdec.verifying.exits.exits import Exits, Shortlist, best
from specdec.verifying.exits.files import load_exits, save_exits
from specdec.verifying.exits.fingerprint import Fingerprint, fingerprint
from specdec.verifying.exits.layers import choose_layers, usual_width
from specdec.verifying.exits.worth import use_exits

__all__ = [
    "ExitAdapters",
    "Exits",
    "Fingerprint",
    "Shortlist",
    "best",
    "choose_layers",
    "fingerprint",
    "load_exits",
    "save_exits",
    "use_exits",
    "usual_width",
]
