#!/usr/bin/env bash
# `make test-docker`: images are built, containers run (tests/docker/live). Takes the Docker that is here, or starts an engine
# of its own (docker/engine.sh), which ends with it. Where neither is possible it says so in one line, and nothing has failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

skip() { printf 'make test-docker: skipped: %s\n' "$*"; exit 0; }
answers() { timeout 20 docker version >/dev/null 2>&1; }
# Room for the images in this folder, or in the nearest one above it that is there.
need_space() {
  local place=$1 free_mb
  while [ ! -d "$place" ]; do place=$(dirname "$place"); done
  free_mb=$(df -Pm "$place" 2>/dev/null | awk 'NR == 2 {print $4}')
  [ "${free_mb:-0}" -ge 12000 ] || skip "12 GB of disk are needed for the images, ${free_mb:-0} MB are free at $place"
}

if command -v docker >/dev/null && answers; then
  timeout 20 docker compose version >/dev/null 2>&1 || skip "this Docker has no Compose v2: install its plugin (docker-compose-plugin)"
  need_space "$(timeout 20 docker info -f '{{.DockerRootDir}}')"
else
  [ "$(id -u)" = 0 ] || skip "no Docker engine answers here, and only root can start one"
  command -v apt-get >/dev/null || skip "no Docker engine answers here, and only Debian's is known to docker/engine.sh"
  need_space "${SPECNAV_DOCKER_ROOT:-/var/tmp/specnav-docker}"
  said=$(mktemp); trap 'rm -f "$said"; docker/engine.sh down' EXIT
  settings=$(docker/engine.sh up 2> >(tee "$said" >&2)) || skip "containers are not possible here: $(tail -n 1 "$said")"
  eval "$settings"
fi
.venv/bin/python -m pytest tests/docker/live "$@"
