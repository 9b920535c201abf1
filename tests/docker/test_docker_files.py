"""The Docker files name only what exists here: paths, modules, launch files and their arguments, torch's version.

No image is built here: that is what tests/docker/live does (make test-docker).
"""

from __future__ import annotations

import fnmatch
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cloud_verifier.observing.http import StatusServer
from specnav.paths import ROOT
from tests.helpers.emulated import emulated
from tests.helpers.verifier import verifier

pytestmark = pytest.mark.slow

DOCKER = ROOT / "docker"
DOCKERFILES = sorted(path for path in DOCKER.glob("*.Dockerfile") if path.name != "prometheus.Dockerfile")
COMPOSE = sorted(DOCKER.glob("compose*.yaml"))
LAUNCH_ARGUMENT = re.compile(r"""^\s+["'](\w+)["']: \(""", re.MULTILINE)
INCLUDED = re.compile(r"""["'](\w+\.launch\.py)["']""")
UNITREE = ("unitree_api", "unitree_go")


def instructions(path: Path) -> list[tuple[str, str]]:
    """(instruction, its text) in order, continued lines joined, comments dropped."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in joined.splitlines() if line.strip()]


def lines_of(path: Path, kind: str) -> list[str]:
    return [text for instruction, text in instructions(path) if instruction == kind]


def copied(path: Path) -> list[str]:
    """Sources of all COPY instructions, except for those that take from another stage."""
    own = [text.split() for text in lines_of(path, "COPY") if not text.startswith("--from")]
    return [word for words in own for word in words[:-1] if not word.startswith("--")]


def compose(name: str = "compose.yaml") -> dict:
    return yaml.safe_load((DOCKER / name).read_text())


def commands() -> list[tuple[str, list[str]]]:
    """Every command line the files start a container with, and health checks."""
    found = []
    for path in DOCKERFILES:
        found += [(path.name, json.loads(text)) for text in lines_of(path, "CMD")]
        found += [(path.name, json.loads(text.split("CMD ")[1])) for text in lines_of(path, "HEALTHCHECK")]
    for path in COMPOSE:
        services = compose(path.name)["services"]
        found += [(name, [str(w) for w in s["command"]]) for name, s in services.items() if "command" in s]
    return found


def launch_arguments(name: str) -> set[str]:
    """What a launch file takes, by itself or for one that it includes."""
    text = (ROOT / "launch" / name).read_text()
    included = [launch_arguments(other) for other in INCLUDED.findall(text) if other != name]
    return set(LAUNCH_ARGUMENT.findall(text)).union(*included)


def ids(values):
    return [v[0] if isinstance(v, tuple) else v.name for v in values]


@pytest.mark.parametrize("path", DOCKERFILES, ids=ids(DOCKERFILES))
def test_what_is_copied_exists_and_is_not_kept_out_of_the_build(path):
    ignored = [line for line in (ROOT / ".dockerignore").read_text().split("\n") if line and line[0] != "#"]
    assert copied(path)
    for source in copied(path):
        assert (ROOT / source).exists(), source
        assert not any(fnmatch.fnmatch(source, pattern) for pattern in ignored), source
        # A link itself may be copied as its content or as a link: name what it leads to.
        assert source == "." or not (ROOT / source).is_symlink(), source


def test_links_in_what_the_robot_s_image_copies_lead_to_what_it_copies_too():
    rooms = [ROOT / source for source in copied(DOCKER / "robot.Dockerfile")]
    found = [path for room in rooms if room.is_dir() for path in room.rglob("*") if path.is_symlink()]
    made = {ROOT / "ros2_ws" / name for name in ("build", "install", "log")}
    links = [link for link in found if not any(link.is_relative_to(folder) for folder in made)]
    assert ROOT / "ros2_ws/src/spec_vlm_nav/default_models" in links
    for link in links:
        assert any(link.resolve().is_relative_to(room) for room in rooms), link


def test_the_cloud_s_own_configuration_is_no_link_into_rooms_that_its_image_lacks():
    for name in ("cloud.yaml", "points", "questions"):
        assert not (ROOT / "config" / name).is_symlink()


@pytest.mark.parametrize("path", DOCKERFILES, ids=ids(DOCKERFILES))
def test_containers_do_not_run_as_root(path):
    users = lines_of(path, "USER")
    assert users and users[-1].split(":")[0] not in ("root", "0")


def test_the_robot_s_user_keeps_the_group_to_which_a_jetson_s_gpu_belongs():
    path = DOCKER / "robot.Dockerfile"
    (added,) = [text for text in lines_of(path, "RUN") if "useradd" in text]
    (uid,) = re.findall(r"useradd .*--uid (\d+) --groups video ", added)
    assert lines_of(path, "USER") == [uid]  # with a group behind it Docker drops the others


@pytest.mark.parametrize("name", ["robot.Dockerfile", "cloud.Dockerfile"])
def test_models_are_kept_in_a_volume_that_the_user_may_write(name):
    path = DOCKER / name
    assert lines_of(path, "VOLUME") == ["/models"] and "HF_HOME=/models/hub" in lines_of(path, "ENV")
    assert any(re.search("mkdir /models .*chown specnav: /models", text) for text in lines_of(path, "RUN"))


def test_the_messages_of_a_go2_are_built_from_one_commit_and_are_there_for_every_command():
    path = DOCKER / "robot.Dockerfile"
    values = dict(text.split("=", 1) for text in lines_of(path, "ARG"))
    assert values["WITH_UNITREE"] == "1" and re.fullmatch("[0-9a-f]{40}", values["UNITREE_COMMIT"])
    (built,) = [text for text in lines_of(path, "RUN") if "UNITREE_COMMIT" in text]
    assert all(f"/unitree/{package}" in built and f"{package}.msg" in built for package in UNITREE)
    kinds = [(kind, text) for kind, text in instructions(path) if kind in ("RUN", "COPY")]
    entrypoint_at = next(i for i, (_, text) in enumerate(kinds) if text.startswith("docker/entrypoint.sh"))
    assert entrypoint_at < kinds.index(("RUN", built))
    assert "/opt/unitree/install/setup.bash" in (DOCKER / "entrypoint.sh").read_text()


def test_vllm_is_installed_only_on_demand_and_for_the_torch_that_is_there():
    path = DOCKER / "cloud.Dockerfile"
    assert dict(text.split("=", 1) for text in lines_of(path, "ARG") if "=" in text)["WITH_VLLM"] == "0"
    kinds = [(kind, text) for kind, text in instructions(path) if kind in ("RUN", "COPY")]
    (built,) = [text for text in lines_of(path, "RUN") if "setup_vllm.py" in text]
    assert built.startswith('if [ "${WITH_VLLM}" = 1 ]; then') and "setup_vllm.py --gpu" in built
    copied_before = " ".join(text for kind, text in kinds[: kinds.index(("RUN", built))] if kind == "COPY")
    for needed in ("setup_vllm.py", "setup_env.py", "setup_gguf.py", "vllm_torchvision.py", "cloud_verifier"):
        assert needed in copied_before


def test_llama_cpp_is_compiled_only_on_demand_and_before_what_changes_more_often():
    path = DOCKER / "robot.Dockerfile"
    values = dict(text.split("=", 1) for text in lines_of(path, "ARG"))
    assert (values["WITH_GGUF"], values["GGUF_CMAKE_ARGS"]) == ("0", "")
    kinds = [(kind, text) for kind, text in instructions(path) if kind in ("RUN", "COPY")]
    (built,) = [text for text in lines_of(path, "RUN") if "setup_gguf.py" in text]
    assert built.startswith('if [ "${WITH_GGUF}" = 1 ]; then') and 'CMAKE_ARGS="${GGUF_CMAKE_ARGS}"' in built
    at = kinds.index(("RUN", built))
    copied_before = [text.split()[0] for kind, text in kinds[:at] if kind == "COPY"]
    assert copied_before == ["requirements/constraints.txt", "scripts/setup_gguf.py"]
    given = compose("compose.robot.yaml")["services"]["robot"]["build"]["args"]
    assert given["WITH_GGUF"] == "${WITH_GGUF:-0}" and given["GGUF_CMAKE_ARGS"] == "${GGUF_CMAKE_ARGS:-}"
    for told in (DOCKER / "compose.robot.yaml", ROOT / "docs/gguf.md"):
        assert "-DGGML_CUDA=on -DCMAKE_CUDA_ARCHITECTURES=87" in told.read_text()  # an Orin


def settings_of(name: str, service: str) -> dict:
    """A service of a Compose file with all that it extends, as Compose merges them."""
    own = compose(name)["services"][service]
    extended = own.get("extends")
    below = {} if extended is None else settings_of(extended.get("file", name), extended["service"])
    return {**below, **own}


WHOLE = [path.name for path in COMPOSE if path.name != "compose.gpu.yaml"]
SERVICES = [(file, name) for file in WHOLE for name in compose(file)["services"]]


@pytest.mark.parametrize(("file", "service"), SERVICES, ids=[f"{file}-{name}" for file, name in SERVICES])
def test_every_service_is_hardened_bounded_and_asked_whether_it_makes_progress(file, service):
    settings = settings_of(file, service)
    assert settings["read_only"] is True and settings["cap_drop"] == ["ALL"]
    assert settings["security_opt"] == ["no-new-privileges:true"] and "privileged" not in settings
    assert settings["mem_limit"] and settings["pids_limit"] and settings["tmpfs"][0].startswith("/tmp:")
    check = settings.get("healthcheck", {}).get("test", ["CMD", "docker/healthcheck.py"])  # the cloud image's own
    assert check[0] in ("CMD", "CMD-SHELL") and "disable" not in settings.get("healthcheck", {})
    words = " ".join(str(value) for value in settings.get("environment", {}).values())
    assert not re.search(r"password|admin|secret", words.replace("/var/lib/grafana/admin-password", ""))
    for port in settings.get("ports", ()):
        assert port.startswith("127.0.0.1:")


def test_a_real_robot_is_on_the_host_s_network_and_moves_only_when_told_to():
    (robot,) = compose("compose.robot.yaml")["services"].values()
    assert (robot["network_mode"], robot["ipc"], robot["stop_signal"]) == ("host", "host", "SIGINT")
    assert robot["environment"]["RMW_IMPLEMENTATION"] == "rmw_cyclonedds_cpp"
    assert "models:/models" in robot["volumes"] and robot["restart"] == "no"
    assert "dry_run:=${DRY_RUN:-true}" in robot["command"]


ROOMS = ("specdec", "cloud_verifier", "specnav", "navsim", "spec_vlm_nav")


def test_the_cloud_image_s_programs_start_without_the_rooms_that_are_not_copied():
    missing = [room for room in ROOMS if room not in copied(DOCKER / "cloud.Dockerfile")]
    assert missing == ["navsim", "spec_vlm_nav"]
    program = f"""
import sys
sys.modules.update(dict.fromkeys({missing}))
import cloud_verifier.__main__, specdec.link.emulator
from specnav.cli.app import main
sys.argv = ["specnav", "serve", "--help"]
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, text=True, capture_output=True, timeout=60
    )
    assert done.returncode == 0 and "--bind" in done.stdout, done.stderr[-2000:]


@pytest.mark.parametrize(("where", "argv"), commands(), ids=ids(commands()))
def test_commands_name_programs_modules_and_launch_files_that_are_there(where, argv):
    program, *rest = argv
    if program == "python" and rest[0] == "-m":
        assert importlib.util.find_spec(rest[1]) is not None
    elif program == "python":
        assert (ROOT / rest[0]).is_file()
    elif program == "specnav":
        assert rest[0] in ("serve", "api", "demo") and importlib.util.find_spec(f"specnav.{rest[0]}") is not None
    elif program == "docker/fleet.sh":
        assert os.access(ROOT / program, os.X_OK) and f"\n{rest[0]})\n" in (ROOT / program).read_text()
    elif program == "docker/entrypoint.sh":
        assert (ROOT / rest[1]).is_file()
    elif program in ("ray", "promtool"):
        assert rest[0] in ("health-check", "query")
    elif program == "ros2":
        assert rest[:2] == ["launch", "spec_vlm_nav"]
        assert {word.split(":=")[0] for word in rest[3:]} <= launch_arguments(rest[2])
    else:
        assert argv == ["docker/all_tests.sh"] and os.access(ROOT / argv[0], os.X_OK)
        assert "\nmake test\n" in (ROOT / argv[0]).read_text()
        assert "\ntest:" in (ROOT / "Makefile").read_text()
        launch_tests = re.findall(r"in (ros2_ws/\S+);", (ROOT / argv[0]).read_text())
        assert launch_tests and all(list(ROOT.glob(pattern)) for pattern in launch_tests)


def test_the_emulator_takes_the_options_that_compose_gives_it():
    from specdec.link.emulator import build_parser

    command = compose()["services"]["link"]["command"][3:]
    plain = [re.sub(r"\$\{\w+:-(.*?)\}", r"\1", word) for word in command]
    given = build_parser().parse_args(plain)
    assert given.rtt_ms == 40 and given.connect == "tcp://cloud:5555"


@pytest.mark.parametrize("path", COMPOSE, ids=ids(COMPOSE))
def test_compose_builds_from_files_and_arguments_that_exist(path):
    name = path.name
    base = compose("compose.yaml" if name == "compose.gpu.yaml" else name)["services"]
    for service, settings in compose(name)["services"].items():
        build = {**base[service].get("build", {}), **settings.get("build", {})}
        if not build:
            continue
        file = (DOCKER / build["context"] / build["dockerfile"]).resolve()
        declared = {text.split("=")[0] for text in lines_of(file, "ARG")}
        assert set(build["args"]) <= declared
        assert all(d in base for d in settings.get("depends_on", {}))


def test_all_files_install_the_torch_that_the_set_up_installs():
    wanted = re.search(r'TORCH_VERSION = "(.*)"', (ROOT / "scripts/setup_env.py").read_text())
    assert wanted is not None
    texts = [path.read_text() for path in [*DOCKERFILES, *COMPOSE]]
    named = {v for text in texts for v in re.findall(r"torch==([\d.]+\d)", text)}
    assert named == {wanted.group(1)}


def entrypoint(*argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(DOCKER / "entrypoint.sh"), *argv], env={**os.environ, **environment}, text=True,
        capture_output=True, timeout=20,
    )  # fmt: skip


def test_the_entrypoint_sources_an_overlay_and_becomes_the_command(tmp_path):
    (tmp_path / "install").mkdir()
    (tmp_path / "install/setup.bash").write_text("export FROM_OVERLAY=yes\n")
    program = "import os; print(os.environ['FROM_OVERLAY'])"
    done = entrypoint(sys.executable, "-c", program, OVERLAY=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "yes\n")
    assert entrypoint("bash", "-c", "exit 7").returncode == 7


@pytest.mark.parametrize("program", ["ros2", "launch_test"])
def test_the_entrypoint_runs_ros2s_programs_with_the_python_of_the_environment(tmp_path, program):
    ros2 = tmp_path / program
    ros2.write_text("#!/nowhere/python\nimport sys; print(sys.executable, *sys.argv[1:])\n")
    ros2.chmod(0o755)
    (tmp_path / "python").symlink_to(sys.executable)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = entrypoint(program, "launch", "a b", PATH=path)
    assert done.returncode == 0 and done.stdout.endswith(" launch a b\n")


def healthcheck(address: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(DOCKER / "healthcheck.py"), address]
    environment = {**os.environ, **environment}
    return subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=30, env=environment)


def test_the_health_check_says_in_one_line_that_nobody_is_there():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    done = healthcheck(f"tcp://127.0.0.1:{port}")
    assert done.returncode == 1
    assert done.stderr.startswith("unhealthy: no verifier answers at") and done.stderr.count("\n") == 1


def test_the_health_check_of_a_console_needs_no_proxy():
    """Docker hands its own proxy settings to every container."""
    pages = {"/other": lambda: b'{"robots": 2}'}
    console = StatusServer("127.0.0.1:0", lambda: b"", healthy=str, ready=str, more=pages)
    done = healthcheck(f"http://{console.bind}/other", http_proxy="http://127.0.0.1:9", no_proxy="")
    console.close()
    assert done.returncode == 0 and done.stdout == "healthy: 2 robots\n", done.stderr


def test_the_health_check_shakes_hands_with_a_verifier_through_the_emulator():
    with (
        verifier(ROOT / "default_models/nav-target") as (_, address, _, _),
        emulated(address, "--rtt", "40") as through,
    ):
        for where in (address, through):
            done = healthcheck(where)
            assert done.returncode == 0 and "healthy: " in done.stdout, done.stderr
