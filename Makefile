# Everything runs from .venv; `setup` builds or repairs it and returns in a second when it is complete.
.PHONY: help setup setup-dev setup-gguf setup-vllm demo check test test-docker test-gguf test-real test-vllm lint docs doctor clean
ARGS ?=

help:            ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 14

setup:           ## set up .venv (torch, ROS 2, the simulator)
	@scripts/setup.sh

setup-dev:       ## the same, with what tests and linters need
	@scripts/setup.sh --dev

setup-gguf: setup ## llama.cpp, to draft on GGUF files and to serve them: built once, for minutes   (CMAKE_ARGS="-DGGML_CUDA=on")
	@.venv/bin/python scripts/setup_gguf.py

setup-vllm: setup ## vLLM as the verifier's engine, in .venv-vllm: 3.5 GB, minutes; then specnav serve --engine vllm
	@.venv/bin/python scripts/setup_vllm.py

demo: setup      ## the robot walks: verifier, simulator and ROS nodes on this machine   (ARGS="--episodes 5 --rtt 40")
	@.venv/bin/specnav demo $(ARGS)

check: setup-dev ## before a commit: ruff, mypy, and the tests that start no processes and take less than a fifth of a second
	@.venv/bin/python scripts/run_tests.py --fast $(ARGS)

test: setup-dev  ## ruff, mypy and all tests   (ARGS="-k parser")
	@.venv/bin/python scripts/run_tests.py $(ARGS)

test-gguf: setup-dev ## what drafts and verifiers on GGUF files must do, with llama.cpp (sets it up)   (ARGS="-k tower")
	@.venv/bin/python scripts/setup_gguf.py --test $(ARGS)

test-real: setup-gguf setup-dev ## a published model end to end: SmolLM2, downloaded once, 93 MB   (ARGS="-k commands")
	@.venv/bin/specnav models get smollm2
	@OMP_NUM_THREADS=1 .venv/bin/python -m pytest -m real -n 0 tests/real $(ARGS)

test-vllm: setup-dev ## what every engine must do, on vLLM (sets it up)   (ARGS="-k stream")
	@.venv/bin/python scripts/setup_vllm.py --test $(ARGS)

test-docker: setup-dev ## images built, containers run; starts a Docker engine where root may   (ARGS="-k fleet")
	@scripts/test_docker.sh $(ARGS)

lint: setup-dev  ## ruff and mypy
	@.venv/bin/ruff check . && .venv/bin/mypy

docs:            ## the documentation as a static site, site/index.html
	@test -x .venv-docs/bin/python || python3 -m venv .venv-docs
	@.venv-docs/bin/python -m pip install -q -r requirements/docs.txt
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet --strict && echo "site/index.html"

doctor: setup    ## what can this machine run?
	@.venv/bin/specnav doctor

clean:           ## forget the environments, the site and all runs
	rm -rf .venv .venv-docs .venv-vllm site runs
