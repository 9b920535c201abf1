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

"""ROS 2's own linters: licence headers, the style of the code, and PEP 257 for docstrings."""

from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent


def linter(name):
    return pytest.importorskip(f"{name}.main", reason=f"{name} is not installed")


@pytest.mark.copyright
@pytest.mark.linter
def test_copyright():
    assert linter("ament_copyright").main(argv=[str(PACKAGE)]) == 0, "found errors"


@pytest.mark.flake8
@pytest.mark.linter
def test_flake8():
    arguments = ["--config", str(PACKAGE / "ament_flake8.ini"), str(PACKAGE)]
    status, errors = linter("ament_flake8").main_with_errors(argv=arguments)
    assert status == 0, "\n".join(errors)


@pytest.mark.pep257
@pytest.mark.linter
def test_pep257():
    assert linter("ament_pep257").main(argv=[str(PACKAGE)]) == 0, "found errors"
