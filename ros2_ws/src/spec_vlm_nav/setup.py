from glob import glob

from setuptools import find_packages, setup

package_name = 'spec_vlm_nav'

setup(
    name=package_name,
    version='0.1.0',
    packages=find_packages(exclude=['test']),
    data_files=[
        ('share/ament_index/resource_index/packages', ['resource/' + package_name]),
        ('share/' + package_name, ['package.xml']),
        # launch and config are links to the repository's folders of these names.
        ('share/' + package_name + '/launch', glob('launch/*.launch.py')),
        ('share/' + package_name + '/config', glob('config/*.yaml')),
    ],
    install_requires=['setuptools'],
    extras_require={'test': ['pytest']},
    zip_safe=True,
    maintainer='spec_vlm_nav maintainers',
    maintainer_email='maintainers@spec-vlm-nav.org',
    description=(
        'Navigation by a vision-language model, decoded speculatively over an edge and a cloud.'
    ),
    license='Apache-2.0',
    entry_points={
        'console_scripts': [
            'vlm_nav_node = spec_vlm_nav.nodes.vlm_nav_node:main',
            'motion_node = spec_vlm_nav.nodes.motion_node:main',
            'camera_decode_node = spec_vlm_nav.nodes.camera_decode_node:main',
            'go2_state_node = spec_vlm_nav.nodes.go2_state_node:main',
            'view_node = spec_vlm_nav.nodes.view_node:main',
            'blackbox_node = spec_vlm_nav.nodes.blackbox_node:main',
        ],
    },
)
