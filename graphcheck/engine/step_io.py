"""Owns the tensors that go into and come out of a step, and how they are made from the contract."""

from dataclasses import dataclass, fields

import numpy as np
import torch

from graphcheck.engine.batch import HostBatch
from graphcheck.engine.contract import INPUTS, OUTPUTS, BufferSpec
from graphcheck.engine.device import Device

_DTYPES = {"int32": torch.int32, "bool": torch.bool, "float32": torch.float32}


@dataclass(frozen=True)
class StepInputs:
    """Device tensors of one decode step, one row a lane; names, dtypes and shapes are the contract's."""

    token_ids: torch.Tensor
    force_mask: torch.Tensor
    forced_ids: torch.Tensor
    positions: torch.Tensor
    seq_lens: torch.Tensor
    slot_mapping: torch.Tensor
    block_tables: torch.Tensor

    @classmethod
    def from_host(cls, batch: HostBatch, device: Device) -> "StepInputs":
        """New tensors with the values of `batch`."""

        def uploaded(values: np.ndarray) -> torch.Tensor:
            tensor = torch.empty(values.shape, dtype=torch.from_numpy(values).dtype, device=device.torch_device)
            device.upload(tensor, values)
            return tensor

        return cls(**{spec.name: uploaded(getattr(batch, spec.name)) for spec in INPUTS})

    def rows(self, rows: int) -> "StepInputs":
        """The leading rows, in the same memory."""
        return StepInputs(**{spec.name: getattr(self, spec.name)[:rows] for spec in INPUTS})


@dataclass(frozen=True)
class StepOutputs:
    """What a step leaves behind, one row a lane. `argmax_ids` is judged, `next_ids` is fed on."""

    argmax_ids: torch.Tensor
    next_ids: torch.Tensor
    finite: torch.Tensor
    logits: torch.Tensor

    def rows(self, rows: int) -> "StepOutputs":
        """The leading rows, in the same memory."""
        return StepOutputs(**{spec.name: getattr(self, spec.name)[:rows] for spec in OUTPUTS})


@dataclass(frozen=True)
class ContractBuffers:
    """The contract's buffers at full size, allocated once."""

    inputs: StepInputs
    outputs: StepOutputs

    @classmethod
    def allocate(cls, *, lanes: int, blocks: int, vocab: int, device: torch.device) -> "ContractBuffers":
        """Every buffer at its fill value; `vocab` is padded."""
        sizes = {"lanes": lanes, "blocks": blocks, "vocab": vocab}

        def full(spec: BufferSpec) -> torch.Tensor:
            shape = [sizes[unit] for unit in spec.shape]
            return torch.full(shape, spec.fill, dtype=_DTYPES[spec.dtype], device=device)

        return cls(
            StepInputs(**{spec.name: full(spec) for spec in INPUTS}),
            StepOutputs(**{spec.name: full(spec) for spec in OUTPUTS}),
        )


for record, specs in ((StepInputs, INPUTS), (StepOutputs, OUTPUTS)):
    assert tuple(field.name for field in fields(record)) == tuple(spec.name for spec in specs)
