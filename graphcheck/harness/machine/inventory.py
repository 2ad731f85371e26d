"""Owns taking the inventory of this machine; what torch sees is asked of a short-lived child process."""

import os
import platform
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from graphcheck.harness.machine.child import ask
from graphcheck.harness.machine.nvidia import VISIBLE, driver_version, num_nvidia_devices, visible_gpus
from graphcheck.schema.inventory import Gpu, Inventory, TorchView
from graphcheck.targets import own_process

_ASK_TORCH = tuple(own_process.command("graphcheck.targets.bundled.inventory"))
_ASK_SECONDS = 60.0
_SHM = Path("/dev/shm")
_MIB = 1 << 20


def take_inventory() -> Inventory:
    """This machine; touches no GPU in this process and starts no rank. What cannot be found out is no error."""
    torch, problem = torch_view()
    free, total = _shm_mib()
    return Inventory(
        python=platform.python_version(),
        cores=len(os.sched_getaffinity(0)),
        shm_mib=total,
        shm_free_mib=free,
        num_nvidia_devices=num_nvidia_devices(),
        driver=driver_version(),
        visible=os.environ.get(VISIBLE),
        torch=None if torch is None else torch.model_copy(update={"gpus": _with_free_memory(torch.gpus)}),
        problem=problem,
    )


def torch_view(command: Sequence[str] = _ASK_TORCH, seconds: float = _ASK_SECONDS) -> tuple[TorchView | None, str]:
    """What torch sees, or None and why it could not be asked."""
    answer = ask(command, seconds, own_process.environment())
    if answer.problem:
        return None, answer.problem
    try:
        return TorchView.model_validate_json(answer.text), ""
    except ValidationError:
        return None, f"{command[0]} answered {answer.text[:80]!r}"


def _with_free_memory(gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Free memory from the driver: to ask CUDA for it takes some."""
    known = (visible_gpus() if gpus else None) or []
    free = {index: gpu.free_mib for index, gpu in enumerate(known)}
    return tuple(gpu.model_copy(update={"free_mib": free.get(gpu.index)}) for gpu in gpus)


def _shm_mib() -> tuple[int, int]:
    """Free and total."""
    if not _SHM.is_dir():
        return 0, 0
    stat = os.statvfs(_SHM)
    return stat.f_bavail * stat.f_frsize // _MIB, stat.f_blocks * stat.f_frsize // _MIB
