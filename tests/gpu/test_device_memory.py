"""What the driver says of GPU memory: one process with a context is seen, and gone soon after it is killed."""

import subprocess
import sys
import time

import pytest

from graphcheck.harness.machine.inventory import take_inventory
from graphcheck.harness.machine.nvidia import memory_in_use
from graphcheck.harness.running.device_memory import SETTLE_SECONDS, TOLERANCE_MIB
from tests.gpu.conftest import Needs

pytestmark = pytest.mark.gpu

HOLD = "import torch; held = torch.zeros(1, device='cuda'); print('held', flush=True); input()"


def in_use() -> int:
    """MiB on the first GPU."""
    used = memory_in_use()
    assert used is not None, "nvidia-smi does not tell"
    return used[0]


def test_a_bare_context_is_more_than_the_tolerance_and_comes_back_in_time(needs: Needs) -> None:
    needs(1)
    before = in_use()
    command = [sys.executable, "-c", HOLD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert in_use() - before > TOLERANCE_MIB
        process.kill()
    deadline = time.monotonic() + SETTLE_SECONDS
    while in_use() - before > TOLERANCE_MIB:
        assert time.monotonic() < deadline


def test_the_inventory_tells_of_every_gpu_and_takes_none_of_its_memory(needs: Needs) -> None:
    needs(1)
    before = memory_in_use()
    inventory = take_inventory()
    after = memory_in_use()
    assert inventory.torch is not None
    assert before is not None
    assert after is not None
    assert len(inventory.torch.gpus) == len(before)
    assert all(gpu.free_mib is not None for gpu in inventory.torch.gpus)
    assert all(after[gpu] - before[gpu] <= TOLERANCE_MIB for gpu in before)
    assert inventory.driver is not None
    assert inventory.num_nvidia_devices >= len(inventory.torch.gpus)
