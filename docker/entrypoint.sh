#!/usr/bin/env bash
# Sources ROS and the workspaces on top of it, those that exist, then becomes the command.
# /opt/unitree: messages of a Go2. /overlay: mount a workspace of your own there, for example one with nav2_msgs.
set -e
ROS_PREFIX="/opt/ros/${ROS_DISTRO:-humble}"
for setup in "$ROS_PREFIX/setup.bash" "$ROS_PREFIX/install/setup.bash" /opt/unitree/install/setup.bash \
  /opt/specnav/ros2_ws/install/setup.bash "${OVERLAY:-/overlay}/install/setup.bash"; do
  # shellcheck source=/dev/null
  if [ -f "$setup" ]; then source "$setup"; fi
done
# The first line of these names the system's Python; what a launch file starts needs the one with torch.
case "${1:-}" in
ros2 | launch_test)
  if ! command -v "$1" >/dev/null; then
    echo "error: this image has its ROS 2 from wheels, without the command $1: start nodes with python -m, or specnav demo --console" >&2
    exit 1
  fi
  set -- python "$(command -v "$1")" "${@:2}" ;;
esac
exec "$@"
