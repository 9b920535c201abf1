# SPDX-License-Identifier: Apache-2.0
"""Early exits: what the target would say, guessed from the hidden state after one of its earlier layers.

An *exit* is a small adapter after a layer, feeding the target's own final norm and LM head, which all exits
share. It only ever guesses: hints are made of its logits, tokens never are. Layers are counted from 0, as a
`LayerObserver` does; the last one has no exit, being its own.
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
