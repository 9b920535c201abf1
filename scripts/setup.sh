#!/usr/bin/env bash
# Sets up everything in .venv so that `specnav` runs from this clone. Safe to run again: a finished set-up returns
# in a second, an interrupted one is repaired. Usage: scripts/setup.sh [--dev]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\033[1m[set-up]\033[0m %s\n' "$*"; }
die() { printf '[set-up] error: %s\n' "$*" >&2; exit 1; }

# --- system packages: installed when we may, otherwise named once ------------------------------------------
# (what, the test that says it is there, the Debian/Ubuntu package)
APT_MISSING=()
need() { eval "$2" >/dev/null 2>&1 || APT_MISSING+=("$3"); }
need "Python"            "command -v python3"                                   python3
need "venv"              "python3 -c 'import ensurepip, venv'"                  python3-venv
need "C++ compiler"      "command -v g++"                                       g++
need "make"              "command -v make"                                      make
need "cmake"             "command -v cmake"                                     cmake
need "Python headers"    "test -f \"\$(python3 -c 'import sysconfig; print(sysconfig.get_path(\"include\"))')/Python.h\"" python3-dev
need "EGL"               "ldconfig -p | grep -q libEGL.so.1"                    libegl1
need "OpenGL"            "ldconfig -p | grep -qE 'libOpenGL.so.0|libGL.so.1'"   libopengl0
need "software OpenGL"   "find /usr/lib -name 'swrast_dri.so' -o -name 'libgallium*.so' | grep -q ." libgl1-mesa-dri
# For the tests of the operator's page; without it they are skipped, and say so.
case " $* " in *" --dev "*) need "Chromium" "command -v chromium || command -v google-chrome" chromium ;; esac
if ((${#APT_MISSING[@]})); then
  apt_line="apt-get install -y --no-install-recommends ${APT_MISSING[*]}"
  SUDO=""
  if [ "$(id -u)" -ne 0 ]; then SUDO="sudo -n"; fi
  if command -v apt-get >/dev/null && { [ -z "$SUDO" ] || $SUDO true 2>/dev/null; }; then
    say "installing system packages: ${APT_MISSING[*]}"
    $SUDO apt-get update -qq && $SUDO env DEBIAN_FRONTEND=noninteractive $apt_line -qq >/dev/null \
      || say "apt-get failed; going on without. Missing: ${APT_MISSING[*]}"
  else
    say "system packages are missing; please run:  sudo $apt_line"
    say "going on with what can run without them"
  fi
fi
command -v python3 >/dev/null || die "Python 3.10 or newer is needed: sudo apt-get install -y python3 python3-venv"

# --- which Python, which ROS -------------------------------------------------------------------------------
# A sourced ROS 2 brings its own rclpy for the system's Python, so the environment must be built on that one.
ROS_KIND="wheels"
VENV_FLAGS=()
if [ -n "${ROS_DISTRO:-}" ] && [ -n "${AMENT_PREFIX_PATH:-}" ]; then
  ROS_KIND="sourced-$ROS_DISTRO"
  VENV_FLAGS=(--system-site-packages)
fi
python_is_usable() { "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }
PYTHON="${PYTHON:-}"
if [ -z "$PYTHON" ]; then
  for candidate in python3 python3.11 python3.12 python3.10 python3.13; do
    if command -v "$candidate" >/dev/null && python_is_usable "$candidate"; then PYTHON="$candidate"; break; fi
  done
fi
[ -n "$PYTHON" ] && python_is_usable "$PYTHON" || die "Python 3.10 to 3.13 is needed; found: $(python3 --version 2>&1)"

venv_is_sound() { [ -x .venv/bin/python ] && .venv/bin/python -c 'import pip' 2>/dev/null; }
if venv_is_sound && [ -f .venv/ros-kind ] && [ "$(cat .venv/ros-kind)" != "$ROS_KIND" ]; then
  say "ROS changed from $(cat .venv/ros-kind) to $ROS_KIND: rebuilding .venv"
  rm -rf .venv
fi
if ! venv_is_sound; then
  say "creating .venv with $("$PYTHON" --version) (ROS 2: $ROS_KIND)"
  rm -rf .venv
  "$PYTHON" -m venv "${VENV_FLAGS[@]}" .venv || die "python3 -m venv failed: sudo apt-get install -y python3-venv"
fi
echo "$ROS_KIND" > .venv/ros-kind

exec .venv/bin/python scripts/setup_env.py --ros "$ROS_KIND" "$@"
