# The robot's nodes on ROS 2 Humble, for the Orin of a Unitree Go2 (arm64) and for a PC beside it (amd64):
#   docker build -f docker/robot.Dockerfile -t specnav-robot .
#   docker run --network host --ipc host -v specnav-models:/models specnav-robot \
#       ros2 launch spec_vlm_nav go2.launch.py verifier:=tcp://CLOUD:5555
# or with docker/compose.robot.yaml. The default runs on any Orin, the draft model on its CPU. For its GPU, base image and
# torch must be of the CUDA that the JetPack has (docker/README.md, "The base for a Go2"); with JetPack 6.1 or 6.2:
#   --build-arg ROBOT_BASE=dustynv/ros:humble-ros-base-l4t-r36.4.0 --build-arg TORCH=torch
#   --build-arg TORCH_INDEX=(the index of that JetPack)          (and docker run --runtime nvidia)
# With llama.cpp, to draft on GGUF files: --build-arg WITH_GGUF=1, and on an Orin's GPU with the base above
#   --build-arg GGUF_CMAKE_ARGS="-DGGML_CUDA=on -DCMAKE_CUDA_ARCHITECTURES=87 -DGGML_CUDA_NO_VMM=on"
# dustynv/ros:humble-ros-base-l4t-r35.3.1 is not the default: its ROS is built for Python 3.8, this project needs 3.10.
ARG ROBOT_BASE=ros:humble-ros-base-jammy
FROM ${ROBOT_BASE}
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
# What it is compiled with. Compiled for the processor that builds the image: docker/README.md says how for another.
ARG GGUF_CMAKE_ARGS=

SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# Some base images name an index of their own, which lacks most of what is needed: an empty one is pip's own.
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_INDEX_URL=
RUN python3 -c 'import sys; sys.version_info >= (3, 10) or sys.exit( \
    f"ROBOT_BASE has Python {sys.version_info[0]}.{sys.version_info[1]}, 3.10 is needed: ros:humble-ros-base-jammy has it")'
# The L4T images have ROS from source in install/, and an entry for ROS's packages whose key has expired.
RUN set -- g++ cmake make python3-dev python3-venv \
    && if [ "${WITH_UNITREE}" = 1 ]; then set -- "$@" ca-certificates git; fi \
    && if [ "${WITH_SIM}" = 1 ]; then set -- "$@" libegl1 libgl1-mesa-dri; fi \
    && if [ -d "/opt/ros/${ROS_DISTRO}/install" ]; then rm -f /etc/apt/sources.list.d/ros*; \
       else set -- "$@" "ros-${ROS_DISTRO}-rmw-cyclonedds-cpp" "ros-${ROS_DISTRO}-rosbag2-storage-mcap"; fi \
    && apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv --system-site-packages /opt/venv \
    && useradd --create-home --uid 10001 --groups video specnav \
    && mkdir /models && chown specnav: /models
# colcon needs setuptools < 80, and Humble's message generators an EmPy before 4, which colcon would bring.
RUN pip install "setuptools>=77.0.3,<80" wheel "empy<4" colcon-common-extensions \
    && pip install ${TORCH_INDEX:+--index-url "${TORCH_INDEX}"} "${TORCH}"

# Before everything that changes more often than the version of llama.cpp.
WORKDIR /opt/specnav
COPY requirements/constraints.txt requirements/constraints.txt
COPY scripts/setup_gguf.py scripts/setup_gguf.py
RUN if [ "${WITH_GGUF}" = 1 ]; then \
      CMAKE_ARGS="${GGUF_CMAKE_ARGS}" XDG_CACHE_HOME=/tmp/gguf python scripts/setup_gguf.py \
      && rm -rf /tmp/gguf; \
    fi

COPY docker/entrypoint.sh /opt/specnav/docker/entrypoint.sh
# Their IDL for another middleware (Connext) needs a package that not every base has, and nothing here uses it.
WORKDIR /opt/unitree
RUN if [ "${WITH_UNITREE}" = 1 ]; then \
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

WORKDIR /opt/specnav
COPY pyproject.toml README.md LICENSE ./
COPY requirements requirements
COPY specdec specdec
COPY cloud_verifier cloud_verifier
COPY evaluation evaluation
COPY navsim navsim
COPY harness harness
COPY fleet fleet
COPY trials trials
COPY specnav specnav
COPY default_models default_models
# Most of config/ are links into ros2_ws, which holds the files.
COPY config config
COPY ros2_ws ros2_ws
RUN if [ "${WITH_SIM}" = 1 ]; then extras="[sim]"; else extras=""; fi \
    && pip install -c requirements/constraints.txt --no-build-isolation -e ".${extras}"
WORKDIR /opt/specnav/ros2_ws
# What would only fail on the robot fails here: the nodes must import beside this ROS and its numpy.
RUN ../docker/entrypoint.sh python -m colcon build --cmake-args -DBUILD_TESTING=OFF \
    && ../docker/entrypoint.sh python -c 'import nav_msgs.msg, spec_vlm_nav.ros.nodes.motion_node, spec_vlm_nav.ros.nodes.vlm_nav_node, spec_vlm_nav.ros.nodes.view_node, spec_vlm_nav.ros.nodes.camera_decode_node, spec_vlm_nav.ros.nodes.blackbox_node, spec_vlm_nav.ros.nodes.go2_state_node, spec_vlm_nav.ros.nodes.mission_node; nav_msgs.msg.Odometry()' \
    && rm -rf build log

WORKDIR /opt/specnav
# Models of yours, and those that come from the hub.
ENV HF_HOME=/models/hub
VOLUME /models
# Not 10001:10001, which would drop the group video: on a Jetson the GPU's devices belong to it.
USER 10001
ENTRYPOINT ["/opt/specnav/docker/entrypoint.sh"]
CMD ["ros2", "launch", "spec_vlm_nav", "go2.launch.py"]
