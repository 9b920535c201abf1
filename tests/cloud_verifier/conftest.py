"""Makes the shared fixtures known to this folder's tests."""



from tests.cloud_verifier.raw_client import client, server  # noqa: F401
from tests.helpers.keys import keys, linked  # noqa: F401
from tests.helpers.servers import (  # noqa: F401
    model_root,
    pair,
    servers,
    start_server,
    text_pair,
    vision_pair,
)
