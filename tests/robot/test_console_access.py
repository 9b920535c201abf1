"""Who may come in to the console, and who has control."""

import os
import stat

import pytest

from spec_vlm_nav.common.errors import ConsoleError
from spec_vlm_nav.console.access import (
    AccessRole,
    MessageBucket,
    add_token,
    check_binding,
    check_origin,
    find_token,
    make_token,
    read_tokens,
)
from spec_vlm_nav.console.open_page import Control

pytest.importorskip("starlette")


def test_a_token_is_kept_as_its_hash_in_a_file_of_the_owners(tmp_path):
    file = tmp_path / "tokens.json"
    clear, token = make_token("anna", AccessRole.OPERATOR)
    add_token(file, token)
    assert clear not in file.read_text() and stat.S_IMODE(os.stat(file).st_mode) == 0o600
    assert find_token(read_tokens(file), clear).name == "anna"
    assert find_token(read_tokens(file), clear[:-1]) is None and find_token(read_tokens(file), "") is None
    newer, again = make_token("anna", AccessRole.VIEWER)
    add_token(file, again)
    assert (
        find_token(read_tokens(file), clear) is None
        and find_token(read_tokens(file), newer).role is AccessRole.VIEWER
    )


def test_tokens_that_others_can_read_or_that_are_none_are_refused(tmp_path):
    file = tmp_path / "tokens.json"
    add_token(file, make_token("anna", AccessRole.OPERATOR)[1])
    file.chmod(0o644)
    with pytest.raises(ConsoleError, match="chmod 600"):
        read_tokens(file)
    file.chmod(0o600)
    file.write_text('{"a": 1}')
    with pytest.raises(ConsoleError, match="holds no tokens"):
        read_tokens(file)


def test_beyond_loopback_tokens_and_tls_are_needed():
    tokens = (make_token("anna", AccessRole.OPERATOR)[1],)
    for host in ("127.0.0.1", "localhost", "::1", "127.0.0.9"):
        check_binding(host, (), "", False)
    for host in ("0.0.0.0", "192.168.1.4", "robot.local", ""):
        with pytest.raises(ConsoleError, match="no tokens"):
            check_binding(host, (), "cert.pem", False)
        with pytest.raises(ConsoleError, match="without TLS"):
            check_binding(host, tokens, "", False)
        check_binding(host, tokens, "cert.pem", False)


def test_a_container_whose_port_is_published_on_loopback_is_as_local_as_loopback():
    from spec_vlm_nav.console.web import WebConfig

    check_binding("0.0.0.0", None, "", False, published_on_loopback=True)
    published = WebConfig("0.0.0.0", published_on_loopback=True)
    assert published.is_local and not WebConfig("0.0.0.0").is_local
    assert check_origin("http://localhost:8080", "localhost:8080", published.is_local) == ""
    assert "not loopback" in check_origin(
        "http://robot.example:8080", "robot.example:8080", published.is_local
    )


@pytest.mark.parametrize(
    "origin, host, loopback, admitted",
    [
        ("http://127.0.0.1:8765", "127.0.0.1:8765", True, True),
        ("http://localhost:8765", "localhost:8765", True, True),
        ("https://robot:8765", "robot:8765", False, True),
        ("http://evil.example", "127.0.0.1:8765", True, False),
        ("http://127.0.0.1:9999", "127.0.0.1:8765", True, False),
        ("http://rebound.example:8765", "rebound.example:8765", True, False),
        ("null", "127.0.0.1:8765", True, False),
        (None, "127.0.0.1:8765", True, False),
        ("http://127.0.0.1:8765", None, True, False),
        ("file://127.0.0.1:8765", "127.0.0.1:8765", True, False),
        ("http://[x", "[x", True, False),
        ("http://\u2100.example", "\u2100.example", False, False),
    ],
)
def test_only_the_consoles_own_page_may_open_the_socket(origin, host, loopback, admitted):
    assert (check_origin(origin, host, loopback) == "") is admitted


def test_a_bucket_lets_through_so_many():
    bucket = MessageBucket(2.0, 3.0)
    assert [bucket.take(0.0) for _ in range(4)] == [True, True, True, False]
    assert bucket.take(0.5) and not bucket.take(0.5)


def test_control_is_taken_not_shared_and_lost_by_silence():
    control = Control(0.6)
    assert control.take(1, "anna", 0.0, False) == ""
    assert "anna has control" in control.take(2, "ben", 0.1, False) and control.page == 1
    assert control.take(2, "ben", 0.2, True) == "" and control.page == 2
    control.beat(1, 5.0)
    assert control.lost(0.7) == "" and control.lost(0.9) == "ben" and control.page is None
    assert control.lost(1.0) == "", "said once"
