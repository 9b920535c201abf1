"""What a process does not use it does not import: a robot's node that comes up late is blind meanwhile."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

DEFAULTS = Path(__file__).resolve().parents[2] / "default_models"
LIBRARY = ("transformers", "accelerate", "bitsandbytes", "qwen_vl_utils", "huggingface_hub", "scipy", "sympy")
"""Of Hugging Face, and what comes with it; sympy comes with torch's compiler, too."""
COMPILER = ("torch._dynamo", "torch._inductor", "torch.distributed.tensor")
NO_TORCH = ("torch", *LIBRARY)

with_ros = pytest.mark.skipif(importlib.util.find_spec("rclpy") is None, reason="needs ROS")


def imported(code: str, watched: tuple[str, ...]) -> list[str]:
    """Those of the watched modules that a fresh interpreter has imported after some code."""
    told = f"import sys\n{code}\nprint(*(name for name in {watched!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()


@with_ros
def test_nodes_come_up_without_torch_simulator_and_video() -> None:
    """The node that decides loads its model in a thread, when it is there already."""
    nodes = ("motion_node", "blackbox_node", "go2_state_node", "vlm_nav_node")
    code = "\n".join(f"import spec_vlm_nav.ros.nodes.{node}" for node in nodes)
    assert imported(code, (*NO_TORCH, "cv2", "av", "mujoco", "specdec.models")) == []


@with_ros
def test_simulator_comes_up_without_torch_and_without_what_is_ours() -> None:
    ours = ("specdec", "spec_vlm_nav", "cloud_verifier", "specnav", "evaluation")
    assert imported("import navsim.ros_node", (*NO_TORCH, *ours)) == []


def test_commands_answer_without_torch() -> None:
    """Help and wrong flags, and the parents of the processes that load models."""
    code = (
        "import specnav.cli.app, specnav.generate, specnav.supervise.verifier_process\n"
        "import specnav.serve, specnav.demo.run\n"
        "import specnav.drill.run, cloud_verifier.__main__, specnav.bench.data.names\n"
        "import specnav.plan.fleet, specnav.fleet.run\n"
        "from specdec.methods import get_method\n"
        "get_method('fsd')"
    )
    assert imported(code, NO_TORCH) == []


def test_verifier_and_edge_get_ready_without_the_library_and_torchs_compiler() -> None:
    code = (
        "import io\n"
        "from cloud_verifier.config import ServerConfig\n"
        "from cloud_verifier.loading import load_hint_maker, warm_up\n"
        "from cloud_verifier.logs import EventLog\n"
        "import cloud_verifier.net.server, specdec.edge.decoder\n"
        "from specdec.models import chat_prompt, load_model, load_tokenizer\n"
        "from PIL import Image\n"
        f"config = ServerConfig({str(DEFAULTS / 'nav-target')!r}, device='cpu')\n"
        "model = load_model(config.model, config.device)\n"
        "assert load_hint_maker(config, model, EventLog(io.StringIO())) is not None\n"
        "warm_up(model)\n"
        "picture = io.BytesIO()\n"
        "Image.new('RGB', (64, 48)).save(picture, 'PNG')\n"
        "prompt = chat_prompt(model, 'find the ball', images=[picture.getvalue()])\n"
        "model.new_session().prefill(model.encode(prompt))\n"
        f"load_tokenizer({str(DEFAULTS / 'text-draft')!r})"  # all that an edge needs that drafts nothing
    )
    assert imported(code, (*LIBRARY, *COMPILER, "opentelemetry")) == []
