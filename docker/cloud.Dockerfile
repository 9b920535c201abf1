# The cloud verifier on a machine with an NVIDIA GPU. From the root of the repository:
#   docker build -f docker/cloud.Dockerfile -t specnav-cloud .
#   docker run --gpus all -p 5555:5555 -v "$PWD/models:/models" -v keys:/keys specnav-cloud \
#       specnav serve --bind tcp://0.0.0.0:5555 --keys /keys --model Qwen/Qwen2-VL-7B-Instruct --quantize 4bit
# With vLLM for `specnav serve --engine vllm`: --build-arg WITH_VLLM=1 (not built yet; some 10 GB more)
# torch brings its own CUDA libraries; the base image makes the container refuse a driver that is too old for them.
# Without a GPU: --build-arg BASE=ubuntu:24.04. The image is some 3 GB smaller with torch's builds for CPUs:
#                --build-arg TORCH=torch==2.13.0+cpu --build-arg TORCH_INDEX=(the index that has them, see pytorch.org)
# For a fleet (specnav fleet): --build-arg EXTRAS=fleet
ARG BASE=nvidia/cuda:13.0.1-base-ubuntu24.04
FROM ${BASE}
ARG TORCH=torch==2.13.0
# Empty: the index that pip has by itself.
ARG TORCH_INDEX=
# Extras of pyproject.toml, with commas between.
ARG EXTRAS=
# 1: vLLM beside it, in an environment of its own.
ARG WITH_VLLM=0

SHELL ["/bin/bash", "-o", "pipefail", "-c"]
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/venv \
    && useradd --create-home --uid 10001 specnav \
    && mkdir /models && chown specnav: /models && mkdir /fleet && chown specnav: /fleet \
    && mkdir --mode=700 /keys && chown specnav: /keys
RUN pip install "setuptools>=77.0.3,<80" wheel \
    && pip install ${TORCH_INDEX:+--index-url "${TORCH_INDEX}"} "${TORCH}"

WORKDIR /opt/specnav
COPY pyproject.toml README.md LICENSE ./
COPY requirements requirements
COPY specdec specdec
COPY cloud_verifier cloud_verifier
COPY evaluation evaluation
COPY harness harness
COPY fleet fleet
COPY trials trials
COPY specnav specnav
COPY config config
COPY default_models default_models
COPY docker/healthcheck.py docker/healthcheck.py
RUN pip install -c requirements/constraints.txt --no-build-isolation -e ".${EXTRAS:+[${EXTRAS}]}" \
    && specnav serve --help > /dev/null
COPY scripts/setup_env.py scripts/setup_gguf.py scripts/setup_vllm.py scripts/vllm_torchvision.py scripts/
RUN if [ "${WITH_VLLM}" = 1 ]; then \
        case "${TORCH}" in *+cpu) python scripts/setup_vllm.py ;; *) python scripts/setup_vllm.py --gpu ;; esac; \
    fi

# Models from the hub are kept in the volume.
ENV HF_HOME=/models/hub
VOLUME /models
USER 10001:10001
EXPOSE 5555
# A hand-shake of the verifier's own protocol; loading a large model takes a while.
HEALTHCHECK --interval=10s --timeout=5s --start-period=300s --retries=3 \
    CMD ["python", "docker/healthcheck.py", "tcp://127.0.0.1:5555", "/keys/health.key"]
CMD ["specnav", "serve", "--bind", "tcp://0.0.0.0:5555", "--keys", "/keys"]
