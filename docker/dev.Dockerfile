# Ubuntu 24.04 with ROS 2 Jazzy and everything the tests and linters need:
#   docker build -f docker/dev.Dockerfile -t specnav-dev .
#   docker run --rm --shm-size 1g specnav-dev                                       # all tests, then the launch files for real
#   docker run --rm -it --shm-size 1g specnav-dev make test ARGS="tests/graph -x"
#   docker run --rm -it specnav-dev ros2 launch spec_vlm_nav sim.launch.py --show-args
#   docker build --build-arg WITH_NAV2=1 ...      # also compiles spec_vlm_nav_nav2 against Nav2's headers
FROM ros:jazzy-ros-base-noble
ARG WITH_NAV2=0
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN if [ "${WITH_NAV2}" = 1 ]; then set -- ros-jazzy-nav2-behavior-tree; fi \
    && apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" \
       cmake g++ git libegl1 libgl1-mesa-dri libopengl0 make python3-dev python3-venv \
       ros-jazzy-diagnostic-msgs ros-jazzy-launch-testing ros-jazzy-launch-testing-ament-cmake \
       ros-jazzy-launch-testing-ros ros-jazzy-rmw-cyclonedds-cpp ros-jazzy-rosbag2-storage-mcap ros-jazzy-test-msgs \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 specnav \
    && mkdir /opt/specnav && chown specnav: /opt/specnav

USER 10001:10001
WORKDIR /opt/specnav
COPY --chown=10001:10001 . .
# The way of a user: a sourced ROS, then the set-up script; and a colcon workspace with the Python of .venv.
RUN docker/entrypoint.sh scripts/setup.sh --dev
ENV PATH=/opt/specnav/.venv/bin:$PATH
WORKDIR /opt/specnav/ros2_ws
RUN ../docker/entrypoint.sh python -m colcon build
WORKDIR /opt/specnav
ENTRYPOINT ["/opt/specnav/docker/entrypoint.sh"]
CMD ["docker/all_tests.sh"]
