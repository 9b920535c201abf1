# Everything runs from .venv; `setup` builds or repairs it and returns in a second when it is complete.
.PHONY: help setup setup-dev demo check test lint doctor clean
ARGS ?=

help:            ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 14

setup:           ## set up .venv (torch, ROS 2, the simulator)
	@scripts/setup.sh

setup-dev:       ## the same, with what tests and linters need
	@scripts/setup.sh --dev

demo: setup      ## the robot walks: verifier, simulator and ROS nodes on this machine   (ARGS="--episodes 5 --rtt 40")
	@.venv/bin/specnav demo $(ARGS)

check: setup-dev ## before a commit: ruff, mypy, and the tests that start no processes and train nothing
	@.venv/bin/python scripts/run_tests.py --fast $(ARGS)

test: setup-dev  ## ruff, mypy and all tests   (ARGS="-k parser")
	@.venv/bin/python scripts/run_tests.py $(ARGS)

lint: setup-dev  ## ruff and mypy
	@.venv/bin/ruff check . && .venv/bin/mypy

doctor: setup    ## what can this machine run?
	@.venv/bin/specnav doctor

clean:           ## forget the environment and all runs
	rm -rf .venv runs
