"""A decode step on a GPU waits for the device in one place only: where its tokens are read."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.conftest import Needs

pytestmark = pytest.mark.gpu

# In a process of its own: the test's must not touch a GPU.
PROGRAM = """
import sys
from pathlib import Path
import torch
from graphcheck.engine.config import EngineConfig
from graphcheck.engine.device import open_device
from graphcheck.engine.engine import Engine
from graphcheck.engine.journal import JournalMemory
from tests.engine.outputs import random_requests, run_engine

folder, graph, attention, planted = sys.argv[1:]
decode = Engine._decode

def watched(self, step):
    torch.cuda.set_sync_debug_mode("error")
    try:
        done = decode(self, step)
        if planted == "planted":
            done.outputs.next_ids.tolist()
        return done
    finally:
        torch.cuda.set_sync_debug_mode("default")

settings = {"graph": graph, "device": "cuda", "allreduce": "nccl", "attention": attention}
config = EngineConfig.from_settings(settings, frozenset())
device = open_device("cuda", 0, share=False)
engine = Engine(Path(folder), config, rank=0, device=device, journal=JournalMemory.create(1)[0].writer(0))
engine.load()
engine.capture()
warm = random_requests(8, vocab=211, seed=2)
run_engine(engine, warm)
Engine._decode = watched
print(len(run_engine(engine, random_requests(8, vocab=211)).steps), "steps")
"""


def run(tiny: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, str(tiny), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("attention", ["gather", "triton"])
@pytest.mark.parametrize("graph", ["off", "on"])
def test_decode_waits_for_the_device_only_to_read_its_tokens(
    needs: Needs, tiny: Path, graph: str, attention: str
) -> None:
    needs(1)
    done = run(tiny, graph, attention, "")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("steps\n")


def test_a_planted_wait_is_seen(needs: Needs, tiny: Path) -> None:
    needs(1)
    done = run(tiny, "on", "gather", "planted")
    assert done.returncode != 0
    assert "synchronizing CUDA operation" in done.stderr
