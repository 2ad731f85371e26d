"""Owns the replay contract: every buffer that a captured step reads or writes, and who keeps it right.

| clause     | promise                                                                          | fix                |
|------------|----------------------------------------------------------------------------------|--------------------|
| residency  | offsets and lengths inside a captured step come from device tensors              | `device-metadata`  |
| contents   | every per-step input is copied into its buffer before each replay                | `metadata-refresh` |
| identity   | a captured buffer is never rebound or reallocated                                | `stable-buffers`   |
| tail       | spare lanes hold their fill value, point at a dummy page, touch nothing live      | `pad-clear`        |
| visibility | the result of an async collective is consumed only when complete                 | `allreduce-sync`   |

Indices are int32 on the device. A buffer is allocated once, at full size, whatever is switched off; graphs of
smaller buckets use its leading rows.
"""

from dataclasses import dataclass
from typing import Literal

from graphcheck.engine.blocks import DUMMY_PAGE


@dataclass(frozen=True)
class BufferSpec:
    """One row of the contract.

    `shape` is in named units: `lanes` (rows of the decode batch), `blocks` (columns of a block table),
    `vocab` (padded vocabulary). `fill` is what a spare lane holds. `owner` is who writes it before or during a
    replay: `ids` and `metadata` are refreshed by the runner, `step` by the captured step itself.
    """

    name: str
    dtype: Literal["int32", "bool", "float32"]
    shape: tuple[Literal["lanes", "blocks", "vocab"], ...]
    fill: float
    owner: Literal["ids", "metadata", "step"]


# The first slot of the dummy page, which every spare lane reads and writes.
_DUMMY_SLOT = 0

INPUTS: tuple[BufferSpec, ...] = (
    BufferSpec("token_ids", "int32", ("lanes",), 0, "ids"),
    BufferSpec("force_mask", "bool", ("lanes",), False, "ids"),
    BufferSpec("forced_ids", "int32", ("lanes",), 0, "ids"),
    BufferSpec("positions", "int32", ("lanes",), 0, "metadata"),
    BufferSpec("seq_lens", "int32", ("lanes",), 1, "metadata"),
    BufferSpec("slot_mapping", "int32", ("lanes",), _DUMMY_SLOT, "metadata"),
    BufferSpec("block_tables", "int32", ("lanes", "blocks"), DUMMY_PAGE, "metadata"),
)

OUTPUTS: tuple[BufferSpec, ...] = (
    BufferSpec("argmax_ids", "int32", ("lanes",), 0, "step"),
    BufferSpec("next_ids", "int32", ("lanes",), 0, "step"),
    BufferSpec("finite", "bool", ("lanes",), False, "step"),
    BufferSpec("logits", "float32", ("lanes", "vocab"), float("-inf"), "step"),
)
