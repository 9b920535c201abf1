from __future__ import annotations

from pathlib import Path

import pytest

from specnav.errors import HarnessError
from specnav.supervise import surroundings
from specnav.supervise.surroundings import Domain, ports_in_use, remove_segments, ros_environment, segments_of

TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref
  123: 00000000:1DE2 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 11 2 0 0
  124: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 12 2 0 0
"""


def test_ports_are_read_from_the_kernels_table() -> None:
    assert ports_in_use([TABLE, ""]) == {0x1DE2, 53}


def test_domain_in_use_is_passed_over(tmp_path: Path) -> None:
    busy = frozenset({7400 + 250 * 5 + 12})

    def found(used: frozenset[int], first: int) -> int:
        domain = Domain(used, first, tmp_path)
        domain.release()
        return domain.number

    assert found(frozenset(), 4) == 5
    assert found(busy, 4) == 6
    assert found(busy, 100) == 101
    assert found(busy, 101) == 1


def test_two_that_look_in_one_instant_get_two_domains(tmp_path: Path) -> None:
    first, second = (Domain(frozenset(), 4, tmp_path) for _ in range(2))
    assert (first.number, second.number) == (5, 6)
    first.release()
    assert Domain(frozenset(), 4, tmp_path).number == 5


def test_a_lock_file_that_may_not_be_opened_is_a_domain_in_use(tmp_path: Path) -> None:
    (tmp_path / "specnav-domain-5.lock").mkdir()
    assert Domain(frozenset(), 4, tmp_path).number == 6


def test_no_free_domain_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="every ROS domain"):
        Domain(frozenset(7400 + 250 * domain for domain in range(1, 102)), 0, tmp_path)


def test_ros_talks_on_this_machine_only(tmp_path: Path) -> None:
    environment = ros_environment(17, tmp_path, threads=1)
    assert environment["ROS_DOMAIN_ID"] == "17"
    assert environment["ROS_AUTOMATIC_DISCOVERY_RANGE"] == "LOCALHOST"
    assert environment["ROS_LOG_DIR"] == str(tmp_path / "ros")


def test_only_shared_memory_of_the_given_processes_is_found(tmp_path: Path) -> None:
    for pid, name in ((10, "fastdds_aa"), (11, "fastdds_bb"), (12, "other")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "maps").write_text(
            f"7fd8-7fd9 rw-s 00000000 00:1b 19                         /dev/shm/{name}\n"
            "7fd8-7fd9 r--p 00000000 00:1b 19                         /usr/lib/libfastdds_x.so\n"
        )
    assert segments_of([10, 12, 99], tmp_path) == {Path("/dev/shm/fastdds_aa")}


def test_segments_in_use_stay_and_dead_ones_go_with_their_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "fastdds_a",
        "fastdds_a_el",
        "fastdds_port7",
        "sem.fastdds_port7_mutex",
        "fastdds_live",
        "fastdds_other",
    ):
        (tmp_path / name).write_text("x")
    monkeypatch.setattr(surroundings, "segments_of", lambda pids: {tmp_path / "fastdds_live"})
    removed = remove_segments([tmp_path / "fastdds_a", tmp_path / "fastdds_port7", tmp_path / "fastdds_live"])
    assert removed == 4
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fastdds_live", "fastdds_other"]
