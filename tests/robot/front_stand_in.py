"""The console's front as a process of its own, with datagrams where ROS would publish: sent to FRONT_SAYS_TO."""

import json
import os
import socket
import sys
import time

from spec_vlm_nav.console.front import run_front

if __name__ == "__main__":
    says = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    says.connect(os.environ["FRONT_SAYS_TO"])

    def publish(name: str, kind: str) -> bool:
        says.send(json.dumps([name, kind, time.monotonic()]).encode())
        return True

    run_front(int(sys.argv[1]), int(sys.argv[2]), publish, lambda names: None)
