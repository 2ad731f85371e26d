"""Owns the host's picture of one decode step: numpy arrays built from the running sequences."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from graphcheck.engine.blocks import DUMMY_PAGE
from graphcheck.engine.contract import INPUTS
from graphcheck.engine.request import Sequence

IntArray = npt.NDArray[np.int32]


@dataclass(frozen=True)
class HostBatch:
    """Inputs of one decode step, one row a lane. Field names are those of the contract's inputs.

    Shapes: [rows], except `block_tables` [rows, blocks]; int32, `force_mask` bool. Never a torch tensor, so that
    host and device stay distinct on a CPU too.
    """

    token_ids: IntArray
    force_mask: npt.NDArray[np.bool_]
    forced_ids: IntArray
    positions: IntArray
    seq_lens: IntArray
    slot_mapping: IntArray
    block_tables: IntArray

    @property
    def rows(self) -> int:
        return len(self.token_ids)

    def padded(self, rows: int) -> "HostBatch":
        """The same batch with spare lanes, at their fill values, up to `rows`."""
        return HostBatch(
            **{
                spec.name: np.concatenate(
                    [
                        array := getattr(self, spec.name),
                        np.full((rows - self.rows, *array.shape[1:]), spec.fill, array.dtype),
                    ]
                )
                for spec in INPUTS
            }
        )


def decode_batch(sequences: Seq[Sequence], *, page_size: int, max_blocks: int) -> HostBatch:
    """The decode step in which each sequence feeds its last token, at position num_tokens - 1."""
    positions = [sequence.num_tokens - 1 for sequence in sequences]
    block_tables = np.full((len(sequences), max_blocks), DUMMY_PAGE, np.int32)
    for row, sequence in enumerate(sequences):
        block_tables[row, : len(sequence.block_table)] = sequence.block_table
    forced = [sequence.next_forced for sequence in sequences]
    return HostBatch(
        token_ids=np.array([sequence.last_token for sequence in sequences], np.int32),
        force_mask=np.array([ids is not None for ids in forced], np.bool_),
        forced_ids=np.array([ids or 0 for ids in forced], np.int32),
        positions=np.array(positions, np.int32),
        seq_lens=np.array([position + 1 for position in positions], np.int32),
        slot_mapping=np.array(
            [
                sequence.block_table[position // page_size] * page_size + position % page_size
                for sequence, position in zip(sequences, positions, strict=True)
            ],
            np.int32,
        ),
        block_tables=block_tables,
    )


def dummy_batch(rows: int, *, max_blocks: int) -> HostBatch:
    """The batch of spare lanes only that a graph is captured with."""
    return decode_batch([], page_size=1, max_blocks=max_blocks).padded(rows)


def twin_batch(rows: int, *, page_size: int, max_blocks: int) -> HostBatch:
    """Spare lanes that hold other contents than `dummy_batch` in every input, for the second capture of a bucket.

    They write the last slot of the dummy page and read the page behind it, which every KV cache has and which no
    sequence holds while graphs are captured.
    """
    batch = dummy_batch(rows, max_blocks=max_blocks)
    offset = np.full(rows, page_size - 1, np.int32)
    return replace(
        batch,
        token_ids=batch.token_ids + 1,
        force_mask=~batch.force_mask,
        forced_ids=batch.forced_ids + 1,
        positions=offset,
        seq_lens=offset + 1,
        slot_mapping=DUMMY_PAGE * page_size + offset,
        block_tables=batch.block_tables + 1,
    )


assert tuple(field.name for field in fields(HostBatch)) == tuple(spec.name for spec in INPUTS)
