"""Makes the shared fixtures known to this folder's tests."""



from tests.helpers.servers import model_root, text_pair  # noqa: F401
