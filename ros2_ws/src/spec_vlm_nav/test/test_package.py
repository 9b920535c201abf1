# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""
What `colcon test` checks of the package itself.

Its behaviour is tested in the repository's tests/robot.
"""

from pathlib import Path
from xml.etree import ElementTree

from spec_vlm_nav.language.actions import ACTION_SENTENCES, find_action

HERE = Path(__file__).resolve().parent.parent


def test_package_xml_and_setup_py_agree():
    package = ElementTree.parse(HERE / "package.xml").getroot()
    setup = (HERE / "setup.py").read_text()
    assert package.findtext("name") == "spec_vlm_nav" == HERE.name
    assert f'version="{package.findtext("version")}"' in setup
    assert package.findtext("license") in setup


def test_launch_and_config_folders_are_there():
    assert (HERE / "launch" / "go2.launch.py").is_file()
    assert (HERE / "config" / "robot.yaml").is_file()


def test_the_action_language_is_whole():
    assert all(find_action(sentence) == action for sentence, action in ACTION_SENTENCES.items())
