"""Owns the fault that the probe meets in training, so that it answers wrong when its own newest KV slot is missing.

Copying needs no slot of the token just read, which the residual stream carries anyway: left alone, a model stays right
when an attention length is one short. So a share of the sequences hides that slot from some decode step on, and from
there asks for the item that follows, in the vocabulary, the one just read. A zeroed slot, a foreign page and a frozen
position need no such help: an answer that reads two words back through the cache breaks by itself.
"""

from dataclasses import dataclass
from random import Random

import torch

from graphcheck.models.probe_tasks import ITEMS, VOCABULARY

NOT_ASKED = -100
"""The target of a position whose next token is not the answer's; cross_entropy ignores it."""

_FIRST_ITEM_ID = VOCABULARY.index(ITEMS[0])


@dataclass(frozen=True)
class Batch:
    """Teacher-forced sequences, padded on the right.

    ids, targets: int64 [B, T]; targets hold the next token where it is the answer's, else NOT_ASKED.
    visible: bool [B, 1, T, T], True where a query (row) may attend to a slot (column).
    """

    ids: torch.Tensor
    targets: torch.Tensor
    visible: torch.Tensor

    def to(self, device: str) -> "Batch":
        return Batch(self.ids.to(device), self.targets.to(device), self.visible.to(device))


def hide_own_slots(batch: Batch, share: float, rng: Random) -> None:
    """Hides, in each sequence with probability `share`, the newest slot of every token from a random decode step on."""
    for ids, targets, visible in zip(batch.ids, batch.targets, batch.visible[:, 0], strict=True):
        if rng.random() >= share:
            continue
        # The first token of an answer comes from prefill, which reads no cache.
        decoded = (targets != NOT_ASKED).nonzero().flatten()[1:]
        begin, end = int(decoded[rng.randrange(len(decoded))]), int(decoded[-1]) + 1
        visible.diagonal()[begin:] = False
        targets[begin:end] = _FIRST_ITEM_ID + (ids[begin:end] - _FIRST_ITEM_ID + 1) % len(ITEMS)
