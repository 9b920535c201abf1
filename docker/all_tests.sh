#!/usr/bin/env bash
# What the dev image runs: all tests, then the launch files for real. From the root of the repository, ROS sourced.
set -e
make test
for file in ros2_ws/src/spec_vlm_nav/test/test_launch_*.py; do
  python "$(command -v launch_test)" "$file"
done
