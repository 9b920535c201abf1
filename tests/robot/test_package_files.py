"""What the ROS packages install and say of themselves, also where a package's folder was copied alone."""

import ast
import re
import runpy
import shutil
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import setuptools

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "ros2_ws" / "src"
PACKAGE = SOURCES / "spec_vlm_nav"
PACKAGES = sorted(path.parent.name for path in SOURCES.glob("*/package.xml"))
SHARE = Path("share/spec_vlm_nav")
CONFIG_FILE = re.compile(r"[\w.-]*\.(?:yaml|xml|rviz)")


def data_files(folder, monkeypatch):
    """The files that setup.py installs, by the folder they go to."""
    said = {}
    monkeypatch.chdir(folder)
    monkeypatch.setattr(setuptools, "setup", said.update)
    runpy.run_path("setup.py")
    return {Path(where): [folder / file for file in files] for where, files in said["data_files"]}


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """What is installed of the package's folder, copied as `cp -r` does, links as links."""
    folder = tmp_path / PACKAGE.name
    ignored = shutil.ignore_patterns("__pycache__", ".ruff_cache")
    shutil.copytree(PACKAGE, folder, symlinks=True, ignore=ignored)
    return data_files(folder, monkeypatch)


def config_files_in(launch_file):
    """Names of files of config/ that a launch file's code mentions; an f-string by its fixed beginning."""
    found = set()
    tree = ast.parse(launch_file.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            first = node.values[0] if node.values else None
            last = node.values[-1] if node.values else None
            if isinstance(last, ast.Constant) and CONFIG_FILE.fullmatch(str(last.value)):
                assert isinstance(first, ast.Constant), ast.unparse(node)
                found.add(f"{first.value}*{last.value}")
        elif isinstance(node, ast.Constant) and CONFIG_FILE.fullmatch(str(node.value)):
            found.add(str(node.value))
    return {name for name in found if not name.startswith(".")}


def test_both_ways_of_installing_take_every_data_file_of_the_package(monkeypatch):
    said = {}
    monkeypatch.chdir(PACKAGE)
    monkeypatch.setattr(setuptools, "setup", said.update)
    runpy.run_path("setup.py")
    patterns = said["package_data"]["spec_vlm_nav"]
    wheel = ast.literal_eval(re.search(r'^"\*" = (\[.*\])$', (ROOT / "pyproject.toml").read_text(), re.M)[1])
    code = PACKAGE / "spec_vlm_nav"
    files = [path for path in code.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")]
    assert code / "language/stop_phrases.ini" in files and code / "console/page/index.html" in files
    for file in files:
        assert any(file.relative_to(code).match(pattern) for pattern in patterns), file
        assert any(file.match(pattern) for pattern in wheel), file


def test_launch_and_config_are_folders_of_the_package_itself():
    for name in ("launch", "config"):
        assert (PACKAGE / name).is_dir() and not (PACKAGE / name).is_symlink()


def test_the_folder_alone_installs_every_file_that_a_launch_file_names(alone):
    launch_files = alone[SHARE / "launch"]
    assert {"go2.launch.py", "go2_bringup.launch.py", "record.launch.py", "sim.launch.py"} <= {
        file.name for file in launch_files
    }
    assert all(file.is_file() for files in alone.values() for file in files)
    installed = {file.name: file for file in alone[SHARE / "config"]}
    named = {name for file in launch_files for name in config_files_in(file)}
    assert "robot.yaml" in named
    for name in named:
        assert any(Path(file).match(name) for file in installed), name


def test_everything_in_config_is_installed(alone):
    installed = {
        (where / file.name).relative_to(SHARE).as_posix()
        for where, files in alone.items()
        for file in files
        if SHARE in where.parents
    }
    config = {path.relative_to(PACKAGE).as_posix() for path in (PACKAGE / "config").rglob("*.*")}
    assert config <= installed


def test_the_default_draft_model_is_installed_where_parameters_look_for_it_and_left_out_where_it_is_not(
    alone, monkeypatch
):
    where = SHARE / "default_models/nav-draft"
    assert where not in alone
    files = data_files(PACKAGE, monkeypatch)[where]
    assert {"config.json", "model.safetensors", "nav_prompt.json"} <= {file.name for file in files}


def test_the_packages_are_valid_and_have_a_changelog_that_is_installed(alone):
    package_of = pytest.importorskip("catkin_pkg.package", reason="catkin_pkg comes with the ROS wheels")
    assert PACKAGES == ["spec_vlm_nav", "spec_vlm_nav_interfaces", "spec_vlm_nav_nav2"]
    maintainers = set()
    for name in PACKAGES:
        warnings = []
        package = package_of.parse_package(SOURCES / name, warnings=warnings)
        package.validate(warnings=warnings)
        assert package.name == name and not warnings
        maintainers |= {person.email for person in package.maintainers}
        title = f"Changelog for package {name}"
        assert title in (SOURCES / name / "CHANGELOG.rst").read_text().splitlines()
        cmake = SOURCES / name / "CMakeLists.txt"
        if cmake.is_file():
            assert re.search(r"install\(\s*FILES[^)]*CHANGELOG.rst", cmake.read_text())
    assert {"package.xml", "CHANGELOG.rst"} == {file.name for file in alone[SHARE]}
    (address,) = maintainers
    assert f'maintainer_email="{address}"' in (PACKAGE / "setup.py").read_text()


# Modules that rosdep brings, by the key in its python.yaml, and those that pip brings.
ROSDEP = {"PIL": "python3-pil", "numpy": "python3-numpy", "yaml": "python3-yaml"}
BY_PIP = {
    "av", "confusable_homoglyphs", "h11", "mcap", "msgspec", "specdec", "starlette", "torch", "uvicorn", "websockets",
}  # fmt: skip
OPTIONAL = {"nav2_msgs", "unitree_api", "unitree_go"}


@pytest.mark.slow
def test_package_xml_names_what_the_code_imports():
    imported = set()
    for path in [*(PACKAGE / "spec_vlm_nav").rglob("*.py"), *(PACKAGE / "launch").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.partition(".")[0])
    foreign = imported - set(sys.stdlib_module_names) - BY_PIP - OPTIONAL - {PACKAGE.name}
    root = ElementTree.parse(PACKAGE / "package.xml").getroot()
    required = {element.text for element in root.iter("exec_depend")}
    assert {ROSDEP.get(name, name) for name in foreign} <= required
    comment = (PACKAGE / "package.xml").read_text().split("<!-- Not from rosdep")[1]
    assert all(name in comment for name in BY_PIP | OPTIONAL)
