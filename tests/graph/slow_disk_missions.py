"""mission_node on a disk that takes 1.5 s for each write."""

from __future__ import annotations

import time

from spec_vlm_nav.missions import record
from spec_vlm_nav.ros.nodes.mission_node import main

write_at_once = record.write_whole


def write_slowly(file, data):
    time.sleep(1.5)
    write_at_once(file, data)


record.write_whole = write_slowly
main()
