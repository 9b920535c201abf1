"""ROS nodes in two containers of one Docker network: they find each other; across two networks they do not."""

from __future__ import annotations

from tests.docker.live.engine import HARDENED, Place

DOMAIN = ("--env=ROS_DOMAIN_ID=42", "--env=ROS_LOG_DIR=/tmp/ros", "--env=HOME=/tmp")
LOOK = ("python", "docker/healthcheck.py", "ros:/motion_status")


def test_a_node_is_heard_in_another_container_of_its_network_and_in_no_other_network(
    place: Place, robot: str
) -> None:
    options = (*HARDENED, *DOMAIN)
    node = place.start("motion", robot, "python", "-m", "spec_vlm_nav.ros.nodes.motion_node", options=options)
    node.wait_for("ready")
    assert (
        place.run(robot, *LOOK, options=options).stdout == "healthy: motion_node speaks on /motion_status\n"
    )
    with Place() as elsewhere:
        done = elsewhere.run(robot, *LOOK, options=options, check=False)
    assert (done.returncode, done.stderr) == (1, "unhealthy: nothing came on /motion_status within 8 s\n")
