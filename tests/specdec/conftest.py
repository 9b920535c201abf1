"""Makes the shared fixtures known to this folder's tests."""



from tests.helpers.servers import (  # noqa: F401
    model_root,
    pair,
    servers,
    start_server,
    text_pair,
    vision_pair,
)
from tests.specdec.scripted_server import scripted  # noqa: F401
