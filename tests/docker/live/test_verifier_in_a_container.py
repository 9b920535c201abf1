"""The verifier in a container: the same answers, whatever is done to the container and its network meanwhile."""

from __future__ import annotations

import time

import pytest

from tests.docker.live.engine import (
    HARDENED,
    PROMPT,
    TARGET,
    Container,
    DockerFailed,
    Place,
    docker,
    inspected,
    wait_until,
)

SERVE = ("python", "-m", "cloud_verifier", "--bind", "tcp://0.0.0.0:5555", "--model", TARGET)
OPEN = (*SERVE, "--insecure")
SLOW = ("--verify-ms", "120")
ASK = (
    "specnav",
    "generate",
    PROMPT,
    "--draft-model",
    "default_models/text-draft",
    "--connect",
    "tcp://verifier:5555",
)
LONG = (*ASK, "--method", "ar", "--max-new-tokens", "60")
"""Some five seconds at SLOW."""


def started(place: Place, image: str, *more: str, serve: tuple[str, ...] = OPEN, **given) -> Container:
    """A verifier that serves."""
    verifier = place.start("verifier", image, *serve, *more, **given)
    verifier.wait_for('"ready"')
    return verifier


def in_the_middle(place: Place, image: str) -> Container:
    """An edge whose answer has begun and is not near its end."""
    edge = place.start("edge", image, *LONG)
    wait_until("the answer has begun", lambda: len(edge.log) > 20, 60)
    return edge


def said(edge: Container, answer: str) -> str:
    """Check an answer to the last letter; returns what stderr said."""
    code = edge.ended()
    done = docker("logs", edge.name)
    assert code == 0, done.stderr
    assert done.stdout == answer + "\n"
    return done.stderr


def test_an_answer_out_of_hardened_containers_is_that_of_the_model_alone(place, cloud, answer, figure):
    verifier = started(place, cloud)
    done = place.run(cloud, *ASK, "--max-new-tokens", "60")
    assert (done.stdout, done.stderr) == (answer + "\n", "")
    wait_until("the image's own health check", lambda: verifier.health == "healthy", 60)
    figure(f"memory of a verifier with {TARGET}: {verifier.memory_mb:.0f} MB")
    assert inspected(verifier.name, "{{.Config.User}} {{.HostConfig.ReadonlyRootfs}}") == "10001:10001 true"


def test_a_network_that_goes_away_and_comes_back_changes_no_token(place, cloud, answer, figure):
    verifier = started(place, cloud, *SLOW)
    edge = in_the_middle(place, cloud)
    place.cut(verifier)
    time.sleep(4.0)
    before = len(edge.log)
    place.mend(verifier, "verifier")
    back = wait_until("the answer goes on", lambda: len(edge.log) > before + 20, 10)
    stderr = said(edge, answer)
    assert "link lost, retrying for 5 s" in stderr and stderr.count("\n") == 1
    figure(f"from the network's return to the next tokens: {back:.1f} s (the link was away for 4 s)")


def test_a_verifier_that_is_killed_and_started_again_changes_no_token(place, cloud, answer):
    verifier = started(place, cloud, *SLOW)
    edge = place.start("edge", cloud, *LONG, "--patience", "60")
    wait_until("the answer has begun", lambda: len(edge.log) > 20, 60)
    docker("kill", "-s", "KILL", verifier.name)
    assert verifier.ended() == 137
    docker("start", verifier.name)
    assert "link lost, retrying for 60 s" in said(edge, answer)


def test_a_link_that_stays_away_ends_in_one_line_after_the_patience_it_was_given(place, cloud):
    verifier = started(place, cloud, *SLOW)
    edge = place.start("edge", cloud, *LONG, "--patience", "1")
    wait_until("the answer has begun", lambda: len(edge.log) > 20, 60)
    docker("kill", verifier.name)
    assert edge.ended() == 1
    lines = docker("logs", edge.name).stderr.splitlines()
    assert lines[-1].startswith("specnav: error: ") and "Traceback" not in "".join(lines)


def test_sigterm_lets_the_answer_in_flight_end(place, cloud, answer, figure):
    verifier = started(place, cloud, "--verify-ms", "60", "--drain-s", "20")
    edge = in_the_middle(place, cloud)
    began = time.monotonic()
    docker("stop", "-t", "25", verifier.name)
    figure(f"docker stop in the middle of an answer took {time.monotonic() - began:.1f} s")
    assert verifier.ended() == 0
    assert said(edge, answer) == ""


def test_a_verifier_at_rest_stops_at_once(place, cloud, figure):
    verifier = started(place, cloud)
    began = time.monotonic()
    docker("stop", verifier.name)
    took = time.monotonic() - began
    assert verifier.ended() == 0 and took < 5
    figure(f"docker stop of a verifier at rest took {took:.1f} s")


def test_a_key_counts_as_soon_as_it_is_in_the_volume_and_no_more_when_it_is_revoked(place, cloud, answer):
    keys, ours = place.volume("keys"), place.volume("ours")
    at = ("-v", f"{keys}:/keys", "-v", f"{ours}:/edge")
    place.run(
        cloud,
        "specnav",
        "keys",
        "new",
        "robot-1",
        "--class",
        "robot",
        "--keys",
        "/keys",
        options=(*HARDENED, *at),
    )
    export = ("specnav", "keys", "export", "robot-1", "--keys", "/keys", "--to", "/edge/robot-1.key")
    place.run(cloud, *export, options=(*HARDENED, *at))
    verifier = started(place, cloud, "--keys", "/keys", serve=SERVE, options=(*HARDENED, *at[:2]))
    asked = (*ASK, "--max-new-tokens", "60", "--key", "/edge/robot-1.key")
    assert place.run(cloud, *asked, options=(*HARDENED, *at)).stdout == answer + "\n"
    without = place.run(cloud, *ASK, options=HARDENED, check=False)
    assert without.returncode == 1 and without.stderr.count("\n") == 1 and "key" in without.stderr
    place.run(cloud, "specnav", "keys", "new", "late", "--keys", "/keys", options=(*HARDENED, *at))
    late = ("specnav", "keys", "export", "late", "--keys", "/keys", "--to", "/edge/late.key")
    place.run(cloud, *late, options=(*HARDENED, *at))
    as_late = (*ASK, "--max-new-tokens", "60", "--key", "/edge/late.key")
    assert place.run(cloud, *as_late, options=(*HARDENED, *at)).stdout == answer + "\n"
    verifier.run("specnav", "keys", "revoke", "robot-1", "--keys", "/keys")
    refused = place.run(cloud, *asked, options=(*HARDENED, *at), check=False)
    assert refused.returncode == 1 and refused.stderr.count("\n") == 1, refused.stderr
    assert inspected(verifier.name, "{{.State.Running}}") == "true"


@pytest.mark.parametrize(
    "mode, owner, words",
    [("0644", "10001", "chmod 600 /edge/a.key"), ("0600", "12345", "chown 10001 /edge/a.key")],
)
def test_a_key_file_of_a_wrong_mode_or_owner_is_one_line(place, cloud, mode, owner, words):
    ours = place.volume("ours")
    as_root = (f"-v={ours}:/edge", "-u=0")
    script = (
        f"echo x > /edge/a.key && chmod {mode} /edge/a.key && chown {owner} /edge/a.key && chmod 755 /edge"
    )
    place.run(cloud, "sh", "-c", script, options=as_root)
    done = place.run(
        cloud, *ASK, "--key", "/edge/a.key", options=(*HARDENED, f"-v={ours}:/edge"), check=False
    )
    assert done.returncode != 0 and done.stderr.count("\n") == 1, done.stderr
    assert words in done.stderr


def test_a_folder_of_keys_of_another_owner_is_one_line(place, cloud):
    keys = place.volume("keys")
    place.run(cloud, "chown", "12345", "/keys", options=(f"-v={keys}:/keys", "-u=0"))
    done = place.run(cloud, *SERVE, "--keys", "/keys", options=(*HARDENED, f"-v={keys}:/keys"), check=False)
    assert done.returncode == 1 and "/keys" in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr


def test_a_wrong_model_path_is_one_line(place, cloud):
    done = place.run(cloud, "specnav", "serve", "--model", "/models/none", check=False)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert done.returncode == 1 and len(lines) == 1 and "/models/none" in lines[0]


def test_a_port_in_use_is_said_by_the_engine_with_its_number(place, cloud, port):
    started(place, cloud, options=(*HARDENED, f"-p=127.0.0.1:{port}:5555"))
    with pytest.raises(DockerFailed, match=port):
        place.start("other", cloud, *OPEN, options=(*HARDENED, f"-p=127.0.0.1:{port}:5555"))


def test_a_model_that_does_not_fit_the_memory_limit_is_one_line_and_not_a_silent_kill(place, cloud):
    models = place.volume("models")
    grow = "truncate -s 900M /models/large/more.safetensors"
    make = f"mkdir /models/large && cp default_models/text-target/* /models/large/ && {grow}"
    place.run(cloud, "sh", "-c", make, options=(f"-v={models}:/models",))
    options = (*HARDENED[:-1], "--memory=400m", f"-v={models}:/models")
    done = place.run(cloud, "specnav", "serve", "--model", "/models/large", options=options, check=False)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert done.returncode == 1 and len(lines) == 1
    assert "memory limit of this container" in lines[0] and "/models/large" in lines[0]


def test_within_a_tight_memory_limit_the_verifier_promises_no_more_than_it_has(place, cloud, answer):
    """The budget for caches comes from the container's limit, not from the machine's memory."""
    verifier = started(place, cloud, "--metrics", "127.0.0.1:9464", options=(*HARDENED[:-1], "--memory=600m"))
    look = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9464/metrics').read().decode())"
    metrics = verifier.run("python", "-c", look).stdout
    (budget,) = [
        float(line.split()[1]) for line in metrics.splitlines() if line.startswith("specdec_kv_budget_bytes ")
    ]
    assert 10e6 < budget < 600e6
    assert place.run(cloud, *ASK, "--max-new-tokens", "60").stdout == answer + "\n"


def test_a_full_volume_is_said_once_and_costs_no_answer(place, cloud, answer):
    options = (*HARDENED, "--tmpfs=/full:size=64k,mode=1777")
    verifier = place.start("verifier", cloud, *OPEN, "--verdict-log", "/full", options=options)
    verifier.wait_for('"ready"')
    verifier.run("sh", "-c", "head -c 65536 /dev/zero > /full/other || true")
    assert place.run(cloud, *ASK, "--max-new-tokens", "60").stdout == answer + "\n"
    docker("stop", verifier.name)  # what is kept is written now, if not before
    assert verifier.ended() == 0
    assert verifier.log.count("No space left on device") == 1 and "Traceback" not in verifier.log


def test_another_user_with_a_home_of_its_own_can_run_both_sides(place, cloud, answer):
    options = (*HARDENED, "--user=12345:23456", "--env=HOME=/tmp/home", "--tmpfs=/tmp/home:mode=1777")
    started(place, cloud, options=options)
    done = place.run(cloud, *ASK, "--max-new-tokens", "60", options=options)
    assert (done.stdout, done.stderr) == (answer + "\n", "")


@pytest.mark.parametrize("locale", ["C", "de_DE.UTF-8"])
def test_no_locale_and_no_time_zone_change_what_is_said(place, cloud, locale):
    options = (*HARDENED, f"--env=LC_ALL={locale}", "--env=TZ=Asia/Tokyo")
    zone = place.run(cloud, "python", "-c", "import time; print(time.strftime('%Z'))", options=options)
    assert zone.stdout == "JST\n"
    started(place, cloud, options=options)
    words = ("specnav", "generate", "für 日本 – «ja»", *ASK[3:], "--max-new-tokens", "8")
    here = place.run(cloud, *words, options=options)
    assert here.stdout.strip() and here.stderr == "" and here.returncode == 0


def test_the_health_check_fails_where_no_token_comes(place, cloud):
    """A process that does not go on is not healthy."""
    verifier = started(place, cloud)
    docker("pause", verifier.name)
    try:
        check = ("python", "docker/healthcheck.py", "tcp://verifier:5555")
        done = place.run(cloud, *check, check=False)
        assert done.returncode == 1 and done.stderr.startswith("unhealthy: ") and done.stderr.count("\n") == 1
    finally:
        docker("unpause", verifier.name)
    assert place.run(cloud, *check).stdout.startswith("healthy: ")
