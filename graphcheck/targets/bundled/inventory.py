"""Owns the short-lived process that asks torch what it sees (`python -m`): one TorchView, as JSON, on stdout."""

import importlib

import torch

from graphcheck.schema.inventory import Gpu, TorchView

_MIB = 1 << 20


def torch_view() -> TorchView:
    """What torch sees. Makes no CUDA context, so that no GPU memory is taken, not even for a moment."""
    problem = _problem()
    return TorchView(
        version=torch.__version__,
        cuda=torch.version.cuda,
        nccl=_nccl(),
        triton=_triton(),
        gpus=() if problem else tuple(map(_gpu, range(torch.cuda.device_count()))),
        problem=problem,
    )


def _problem() -> str:
    try:
        torch.cuda.init()
    except (AssertionError, RuntimeError) as error:  # torch's own: no CUDA in this build, no usable driver or device
        return str(error).partition("\n")[0]
    return ""


def _nccl() -> str | None:
    if torch.distributed.is_available() and torch.distributed.is_nccl_available():
        return ".".join(map(str, torch.cuda.nccl.version()))
    return None


def _triton() -> str | None:
    try:
        return str(importlib.import_module("triton").__version__)
    except Exception:  # a broken installation raises what it likes
        return None


def _gpu(index: int) -> Gpu:
    properties = torch.cuda.get_device_properties(index)
    others = (other for other in range(torch.cuda.device_count()) if other != index)
    return Gpu(
        index=index,
        name=properties.name,
        capability=f"{properties.major}.{properties.minor}",
        total_mib=properties.total_memory // _MIB,
        peers=tuple(other for other in others if torch.cuda.can_device_access_peer(index, other)),
    )


if __name__ == "__main__":
    print(torch_view().model_dump_json())
