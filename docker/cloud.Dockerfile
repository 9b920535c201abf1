# The cloud verifier on a machine with an NVIDIA GPU. From the root of the repository:
#   docker build -f docker/cloud.Dockerfile -t specnav-cloud .
#   docker run --gpus all -p 5555:5555 -v "$PWD/models:/models" -v keys:/keys specnav-cloud \
#       specnav serve --bind tcp://0.0.0.0:5555 --keys /keys --model Qwen/Qwen2-VL-7B-Instruct --quantize 4bit
# torch brings its own CUDA libraries; the base image makes the container refuse a driver that is too old for them.
# Without a GPU: --build-arg BASE=ubuntu:24.04. The image is some 3 GB smaller with torch's builds for CPUs:
#                --build-arg TORCH=torch==2.13.0+cpu --build-arg TORCH_INDEX=(the index that has them, see pytorch.org)
# All arguments: docker/README.md
ARG BASE=nvidia/cuda:13.0.1-base-ubuntu24.04
# What packages are installed on, if that has to know more than the image should: certificates, wheels.
ARG BUILD_BASE=${BASE}

FROM ${BUILD_BASE} AS build
ARG TORCH=torch==2.13.0
# Empty: the index that pip has by itself.
ARG TORCH_INDEX=
# Extras of pyproject.toml, with commas between.
ARG EXTRAS=
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
ENV PATH=/opt/venv/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_COMPILE=1
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/venv
WORKDIR /opt/specnav
COPY requirements/constraints.txt requirements/constraints.txt
RUN pip install "setuptools>=77.0.3,<80" wheel \
    && pip install -c requirements/constraints.txt ${TORCH_INDEX:+--index-url "${TORCH_INDEX}"} "${TORCH}"
# The packages of ours are not here yet: this installs what they need, and the `specnav` command. A change in them does
# not reach these layers.
COPY pyproject.toml README.md LICENSE ./
RUN mkdir -p ros2_ws/src/spec_vlm_nav \
    && pip install -c requirements/constraints.txt --no-build-isolation ".${EXTRAS:+[${EXTRAS}]}" \
    && echo /opt/specnav > "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/specnav.pth"
COPY docker/prune.py docker/prune.py
# What does not compile is nobody's module: templates, and tests of old syntax.
RUN python docker/prune.py && { python3 -m compileall -q -j 0 /opt/venv/lib || true; } && rm -rf build ros2_ws docker ./*.egg-info

# vLLM beside it, in an environment of its own: its installation is checked by our engine.
FROM build AS vllm
ARG TORCH=torch==2.13.0
ARG WITH_VLLM=0
COPY requirements/vllm.txt requirements/vllm.txt
COPY scripts/setup_env.py scripts/setup_gguf.py scripts/setup_vllm.py scripts/vllm_torchvision.py scripts/
COPY specdec specdec
COPY cloud_verifier cloud_verifier
RUN if [ "${WITH_VLLM}" = 1 ]; then \
        case "${TORCH}" in *+cpu) python scripts/setup_vllm.py ;; *) python scripts/setup_vllm.py --gpu ;; esac; \
    fi \
    && rm -rf cloud_verifier specdec

FROM ${BASE}
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3 tzdata \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/* \
    && useradd --create-home --uid 10001 specnav \
    && mkdir /models /fleet && mkdir --mode=700 /keys /edge /ray && chown specnav: /models /fleet /keys /edge /ray
COPY --from=build /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1
WORKDIR /opt/specnav
COPY --from=vllm /opt/specnav ./
# From what changes least to what changes most.
COPY default_models default_models
COPY config config
COPY docker/healthcheck.py docker/fleet.sh docker/
COPY specdec specdec
COPY cloud_verifier cloud_verifier
COPY specnav specnav
# Compiled here: the user of the image may not write, and on a read-only root nobody may.
RUN python -m compileall -q -j 0 . && specnav serve --help > /dev/null

# Models from the hub are kept in the volume.
ENV HF_HOME=/models/hub
VOLUME /models
USER 10001:10001
EXPOSE 5555
# One token from the verifier, or its hand-shake where there is no key for it; loading a large model takes a while.
HEALTHCHECK --interval=10s --timeout=15s --start-period=300s --retries=3 \
    CMD ["python", "docker/healthcheck.py", "tcp://127.0.0.1:5555", "/keys/health.key"]
CMD ["specnav", "serve", "--bind", "tcp://0.0.0.0:5555", "--keys", "/keys"]
# Last, as they differ from build to build.
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG SOURCE=
LABEL org.opencontainers.image.title="specnav cloud verifier" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.source="${SOURCE}" \
    org.opencontainers.image.licenses="Apache-2.0"
