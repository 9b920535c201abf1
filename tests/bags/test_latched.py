"""Which topics of a bag were latched, whatever wrote it and however it ended."""

import pytest
from rosbags.interfaces import QosDurability
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from specnav.bags.qos import latched_profile
from specnav.bags.qos import latched_topics as latched_topics_of
from specnav.bags.source import open_bag
from specnav.bags.writing import McapFile
from specnav.record.types import own_types
from specnav.results.errors import EvaluationError

STORE = get_typestore(Stores.ROS2_HUMBLE)
STRING = "std_msgs/msg/String"
WORD = STORE.serialize_cdr(STORE.types[STRING](data="here"), STRING)


def latched_topics(path):
    return latched_topics_of(open_bag(path))


def volatile(depth=10):
    return latched_profile(depth)._replace(durability=QosDurability.VOLATILE)


def bag(path, version, plugin, **topics):
    with Writer(path, version=version, storage_plugin=plugin) as writer:
        for name, profiles in topics.items():
            connection = writer.add_connection(
                f"/{name}", STRING, typestore=STORE, offered_qos_profiles=profiles
            )
            writer.write(connection, 1, WORD)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("plugin", list(StoragePlugin))
@pytest.mark.parametrize("metadata", [True, False])
def test_the_profiles_in_a_bag_say_it_and_how_many_messages_are_kept(tmp_path, version, plugin, metadata):
    path = bag(
        tmp_path / "bag", version, plugin,
        map=[latched_profile(1)], odom=[volatile()], nothing=[],
        tf_static=[latched_profile(1), latched_profile(2), volatile()], all=[latched_profile(0)],
        many=[latched_profile(10**6)],
    )  # fmt: skip
    if not metadata:
        (path / "metadata.yaml").unlink()
    assert latched_topics(path) == {"/map": 1, "/tf_static": 3, "/all": 1, "/many": 1000}


def test_a_file_that_was_cut_off_says_it_as_far_as_it_goes(tmp_path):
    path = bag(tmp_path / "bag", 9, StoragePlugin.MCAP, map=[latched_profile(1)])
    (file,) = path.glob("*.mcap")
    (path / "metadata.yaml").unlink()
    file.write_bytes(file.read_bytes()[:-60])
    assert latched_topics(path) == {"/map": 1} == latched_topics(file)


def test_what_cannot_be_read_is_not_latched(tmp_path):
    file = tmp_path / "broken.mcap"
    file.write_bytes(b"no bag")
    with pytest.raises(EvaluationError):
        latched_topics(file)
    cut = bag(tmp_path / "bag", 9, StoragePlugin.MCAP, map=[latched_profile(1)])
    (written,) = cut.glob("*.mcap")
    written.write_bytes(written.read_bytes().replace(b"durability", b"durabilitx"))
    assert latched_topics(written) == {}


def test_a_recording_of_ours_says_it_too(tmp_path):
    with McapFile(tmp_path / "own.mcap", own_types()) as file:
        file.add_topic("/safety_changes", STRING, 20)
        file.add_topic("/instruction", STRING)
        file.write("/safety_changes", 1, WORD)
    assert latched_topics(tmp_path / "own.mcap") == {"/safety_changes": 20}
