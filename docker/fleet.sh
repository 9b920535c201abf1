#!/usr/bin/env bash
# What containers of a fleet run: docker/fleet.sh head | node | directory | beside [ARGUMENTS OF ray start, OR OF specnav fleet up]
# compose.fleet.yaml: the token of Ray's cluster and the keys of the fleet are made by the head, at its first start, in volumes
# that outlive it. kubernetes/fleet.yaml: `beside` runs in the pod of Ray's head, whose address is in RAY_ADDRESS.
set -euo pipefail
umask 077
role=$1; shift
object_store=(--object-store-memory=100000000 --disable-usage-stats)
case $role in
head)
  if [ ! -s "$RAY_AUTH_TOKEN_PATH" ]; then
    python -c 'import secrets; print(secrets.token_hex(32), end="")' > "$RAY_AUTH_TOKEN_PATH"
  fi
  if [ ! -s /edge/edge.key ]; then
    [ -s /edge/api.keys ] || echo "# specnav api --new-key NAME --api-keys /edge/api.keys adds one" > /edge/api.keys
    # A head that was killed here may have made the client already.
    specnav keys export edge --keys /keys --to /edge/edge.key 2> /dev/null || {
      specnav keys new edge --class interactive --keys /keys
      specnav keys export edge --keys /keys --to /edge/edge.key
    }
  fi
  exec ray start --head --block --port=6379 --num-cpus=0 --include-dashboard=false "${object_store[@]}" "$@" ;;
node)
  exec ray start --address=head:6379 --block "${object_store[@]}" "$@" ;;
directory)
  ray start --address=head:6379 --num-cpus=1 "${object_store[@]}"
  specnav fleet up --ray head:6379 --keys /keys --state /fleet "$@"
  # The container lives as long as the head knows it.
  while ray health-check --address head:6379; do sleep 5; done ;;
beside)
  until ray health-check > /dev/null 2>&1; do sleep 2; done
  # A container that starts again finds the fleet that it has brought up.
  until [ -n "$(specnav fleet status --ray "$RAY_ADDRESS" --state /fleet --json 2> /dev/null)" ] ||
    specnav fleet up --ray "$RAY_ADDRESS" --keys /keys --state /fleet "$@"; do sleep 10; done
  while ray health-check; do sleep 5; done ;;
*) sed -n 2p "$0"; exit 2 ;;
esac
