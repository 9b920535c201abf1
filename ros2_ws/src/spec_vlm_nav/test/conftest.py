"""The launch tests are for launch_testing's plugin or its `launch_test`; plain pytest would not start anything."""

collect_ignore_glob = []


def pytest_configure(config):
    if not config.pluginmanager.hasplugin('launch_testing'):
        collect_ignore_glob.append('test_launch_*.py')
