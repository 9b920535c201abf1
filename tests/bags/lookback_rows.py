"""A stand-in for `specnav replay`, and the rows that come of it."""

from __future__ import annotations

import json
import sys

REPLAY = """
import json, pathlib, signal, sys, time
given = dict(zip(sys.argv[2::2], sys.argv[3::2]))
out = pathlib.Path(given["--out"]); out.mkdir(parents=True)
rows = json.loads(ROWS)
with (out / "decisions.jsonl").open("w", buffering=1) as file:
    for row in rows:
        line = json.dumps(row)
        file.write(line[:20]); file.flush(); time.sleep(0.05)   # half a line is seen
        file.write(line[20:] + "\\n")
END
"""


def stand_in(rows, end=""):
    return [sys.executable, "-c", REPLAY.replace("ROWS", repr(json.dumps(rows))).replace("END", end)]


def row(frame, stamp_ns, action="forward 50", text=""):
    return dict(
        frame=frame, stamp_ns=stamp_ns, method="sd", instruction="find", reference="", action=action, text=text
    )


def rows_of(found):
    return [row(d["frame"], int(d["stamp_ns"]), text=d["text"]) for d in found.decisions]
