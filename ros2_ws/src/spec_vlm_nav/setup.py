from pathlib import Path

from setuptools import find_packages, setup

package_name = "spec_vlm_nav"
share = Path("share") / package_name
# For the robot, and for sim.launch.py, whose verifier runs beside it. The folder is a link out of
# the package: where the package was copied alone there is nothing behind it.
MODELS = ("nav-draft", "nav-target", "nav-exits")


def installed(folder, *patterns):
    """Return a folder's files for data_files; [] if there are none."""
    found = {file for pattern in patterns for file in Path(folder).glob(pattern) if file.is_file()}
    return [(str(share / folder), sorted(map(str, found)))] if found else []


setup(
    name=package_name,
    version="0.1.0",
    packages=find_packages(exclude=["test"]),
    data_files=[
        ("share/ament_index/resource_index/packages", ["resource/" + package_name]),
        (str(share), ["package.xml", "CHANGELOG.rst"]),
        *installed("launch", "*.launch.py"),
        *installed("config", "*.yaml", "*.xml"),
        *installed("config/rviz", "*.rviz"),
        *installed("config/foxglove", "*.json"),
        *installed("config/sros2", "*.xml"),
        *(entry for name in MODELS for entry in installed(f"default_models/{name}", "*")),
    ],
    install_requires=["setuptools"],
    extras_require={"test": ["pytest"]},
    package_data={package_name: ["console/page/*", "language/*.ini"]},
    zip_safe=False,
    maintainer="spec_vlm_nav maintainers",
    maintainer_email="spec_vlm_nav@users.noreply.github.com",
    description=("Navigation by a vision-language model, decoded speculatively over an edge and a cloud."),
    license="Apache-2.0",
    entry_points={
        "console_scripts": [
            "vlm_nav_node = spec_vlm_nav.ros.nodes.vlm_nav_node:main",
            "motion_node = spec_vlm_nav.ros.nodes.motion_node:main",
            "camera_decode_node = spec_vlm_nav.ros.nodes.camera_decode_node:main",
            "go2_state_node = spec_vlm_nav.ros.nodes.go2_state_node:main",
            "blackbox_node = spec_vlm_nav.ros.nodes.blackbox_node:main",
            "console_node = spec_vlm_nav.ros.nodes.console_node:main",
            "mission_node = spec_vlm_nav.ros.nodes.mission_node:main",
        ],
    },
)
