#!/usr/bin/env bash
# A Docker engine of its own on plain Debian, as root, for tests where Docker is not installed:
#   docker/engine.sh up       installs what is missing (docker.io, Compose v2, Buildx), starts an engine, makes the base images;
#                             prints the settings that a shell needs: eval "$(docker/engine.sh up)"
#   docker/engine.sh down     ends the engine; layers stay in its folder, for the next time
#   docker/engine.sh purge    the same, and its folder goes
# Socket, data, pid file and Docker's settings lie in one folder, SPECNAV_DOCKER_ROOT. An installed Docker is not touched.
set -euo pipefail
ROOT=${SPECNAV_DOCKER_ROOT:-/var/tmp/specnav-docker}
say() { printf '[docker] %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
# Engine and plugins of this folder only, whatever the user has set.
export DOCKER_HOST=unix://$ROOT/sock DOCKER_CONFIG=$ROOT/config
unset DOCKER_CONTEXT
answers() { timeout 10 docker version >/dev/null 2>&1; }

# Where this machine's own packages come from: a mirror, in most places that need this script.
mirror() {
  local sources
  sources=$(ls /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null || true)
  [ -z "$sources" ] || grep -hE '^(URIs:|deb )' $sources | grep -m1 -oE 'https?://[^ ]+/debian' || true
}

# Plugins of the docker command, from the next Debian: each is one static file.
plugins() {
  [ ! -x "$DOCKER_CONFIG/cli-plugins/docker-buildx" ] || return 0
  local folder options
  folder=$(mktemp -d); chmod 755 "$folder"; mkdir -p "$folder/lists" "$folder/cache"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $1 trixie main" >"$folder/sources.list"
  options=(-q -o "Dir::Etc::sourcelist=$folder/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::lists=$folder/lists" -o "Dir::Cache=$folder/cache")
  (cd "$folder" && apt-get "${options[@]}" update && apt-get "${options[@]}" download docker-compose docker-buildx \
    && for package in ./*.deb; do dpkg-deb -x "$package" files; done) >"$ROOT/plugins.log" 2>&1 \
    || die "Compose and Buildx cannot be fetched: $(tail -n 1 "$ROOT/plugins.log")"
  mkdir -p "$DOCKER_CONFIG/cli-plugins"
  find "$folder/files" -path '*cli-plugins/docker-*' -type f -exec cp -t "$DOCKER_CONFIG/cli-plugins" {} +
  rm -rf "$folder"
}

install_engine() {
  local from missing=()
  from=$(mirror)
  [ -n "$from" ] || die "apt's sources name no Debian archive: install Docker with Compose v2 by hand"
  command -v dockerd >/dev/null && command -v docker >/dev/null || missing+=(docker.io)
  command -v iptables >/dev/null || missing+=(iptables)
  command -v debootstrap >/dev/null || missing+=(debootstrap)
  if ((${#missing[@]})); then
    say "installing ${missing[*]}"
    (apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}") \
      >"$ROOT/apt.log" 2>&1 || die "apt-get failed: $(tail -n 1 "$ROOT/apt.log")"
  fi
  plugins "$from"
  [ -d "$ROOT/rootfs/usr" ] && return
  say "making a Debian root file system"
  debootstrap --variant=minbase bookworm "$ROOT/rootfs.part" "$from" >"$ROOT/debootstrap.log" 2>&1 \
    || { tail -n 1 "$ROOT/debootstrap.log" >&2; rm -rf "$ROOT/rootfs.part"; exit 1; }
  rm -rf "$ROOT"/rootfs.part/var/{cache/apt,lib/apt/lists,log}/*
  mv "$ROOT/rootfs.part" "$ROOT/rootfs"
}

start() {
  if answers; then return; fi
  ip link show docker0 >/dev/null 2>&1 && touch "$ROOT/docker0-was-there" || rm -f "$ROOT/docker0-was-there"
  rm -f "$ROOT/pid"
  setsid dockerd --data-root "$ROOT/data" --exec-root "$ROOT/run" --pidfile "$ROOT/pid" -H "$DOCKER_HOST" \
    </dev/null >"$ROOT/dockerd.log" 2>&1 &
  for _ in $(seq 120); do if answers; then return; fi; sleep 0.5; done
  die "dockerd does not start here: $(grep -E 'level=(fatal|error)|failed' "$ROOT/dockerd.log" | tail -n 1)"
}

# Where pip looks for wheels on this machine, if it does.
wheels_folder() { echo "${PIP_FIND_LINKS:-$(python3 -m pip config get global.find-links 2>/dev/null || echo /nowhere)}"; }

# The torch that images take: the one on this machine's disk, where there is one.
torch() {
  local wheel
  for wheel in "$ROOT"/context/wheels/torch-*.whl; do
    wheel=$(basename "$wheel"); wheel=${wheel#torch-}
    [ "$wheel" = '*.whl' ] || { echo " TORCH=torch==${wheel%%-*}"; return; }
  done
}

# specnav-base: what images run on. specnav-build-base: the same with this machine's certificates and its torch wheel, if
# it has one, for stages that install packages.
bases() {
  docker image inspect specnav-base >/dev/null 2>&1 \
    || tar -C "$ROOT/rootfs" -c . | docker import - specnav-base >/dev/null
  local context=$ROOT/context
  rm -rf "$context"; mkdir -p "$context/wheels"
  cp "${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}" "$context/ca.crt" 2>/dev/null || : >"$context/ca.crt"
  cp -t "$context/wheels" "$(wheels_folder)"/torch-*.whl 2>/dev/null || true
  printf '%s\n' 'FROM specnav-base' 'COPY ca.crt /etc/ssl/machine-ca.crt' 'COPY wheels /wheels' \
    'ENV PIP_CERT=/etc/ssl/machine-ca.crt PIP_FIND_LINKS=/wheels' >"$context/Dockerfile"
  DOCKER_BUILDKIT=0 docker build -q -t specnav-build-base "$context" >/dev/null 2>"$ROOT/base.log" \
    || die "the base image cannot be built: $(tail -n 1 "$ROOT/base.log")"
}

down() {
  [ -f "$ROOT/pid" ] || return 0
  local pid; pid=$(cat "$ROOT/pid")
  if answers; then docker ps -q | xargs -r docker kill >/dev/null 2>&1 || true; fi
  kill "$pid" 2>/dev/null || true
  for _ in $(seq 120); do kill -0 "$pid" 2>/dev/null || break; sleep 0.5; done
  rm -f "$ROOT/pid" "$ROOT/sock"
  # What a killed engine leaves behind.
  { grep -oE " $ROOT/[^ ]+" /proc/self/mounts || true; } | sort -r | xargs -r -n 1 umount -l 2>/dev/null || true
  [ -f "$ROOT/docker0-was-there" ] || ip link delete docker0 2>/dev/null || true
}

case ${1:-} in
up)
  [ "$(id -u)" = 0 ] || die "an engine is started by root only: install Docker with Compose v2 by hand"
  mkdir -p "$ROOT"
  install_engine; start; bases
  printf 'export DOCKER_HOST=%q DOCKER_CONFIG=%q BASE=specnav-base BUILD_BASE=specnav-build-base%s\n' "$DOCKER_HOST" "$DOCKER_CONFIG" "$(torch)" ;;
down) down ;;
purge) down; rm -rf "$ROOT" ;;
*) sed -n 2,7p "$0"; exit 2 ;;
esac
