"""Owns the proof that the shipped probe is an instrument: right on its tasks, and wrong as soon as its KV cache is.

Drives transformers' own Llama over a cache that a test damages between prefill and decode; no engine takes part.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from transformers import DynamicCache

PAGE_SIZE = 16


@dataclass(frozen=True)
class Fault:
    """What is wrong in every decode step; a token's own slot is the newest one of its step."""

    damage: Callable[[DynamicCache], None] = lambda cache: None
    hides_own_slot: bool = False
    position: int | None = None


@torch.no_grad()
def prefill(model, ids: list[int]) -> tuple[DynamicCache, int]:
    """The KV cache of a prompt, and the first token of its answer."""
    cache = DynamicCache(config=model.config)
    logits = model(input_ids=torch.tensor([ids]), past_key_values=cache).logits
    return cache, int(logits[0, -1].argmax())


@torch.no_grad()
def decode(model, ids: list[int], num_tokens: int, fault: Fault) -> list[int]:
    """Greedy answer of at most `num_tokens` tokens, one token a step, under a fault that begins after prefill."""
    cache, token = prefill(model, ids)
    fault.damage(cache)
    answer = [token]
    while len(answer) < num_tokens and answer[-1] != model.config.eos_token_id:
        num_slots = len(ids) + len(answer)
        mask = torch.ones(1, 1, 1, num_slots, dtype=torch.bool)
        mask[..., -1] = not fault.hides_own_slot
        position = num_slots - 1 if fault.position is None else fault.position
        logits = model(
            input_ids=torch.tensor([[answer[-1]]]),
            attention_mask=mask,
            position_ids=torch.tensor([[position]]),
            past_key_values=cache,
        ).logits
        answer.append(int(logits[0, -1].argmax()))
    return answer


def zero_slot(position: int) -> Callable[[DynamicCache], None]:
    """Zeroes keys and values of one slot in every layer."""

    def damage(cache: DynamicCache) -> None:
        for layer in cache.layers:
            layer.keys[:, :, position] = 0
            layer.values[:, :, position] = 0

    return damage


def swap_page(number: int, other: DynamicCache) -> Callable[[DynamicCache], None]:
    """Puts the page that `other` has under the same number of its block table in this one's place.

    Keys carry their rotary position, so two full pages of one sequence may trade places unnoticed; what a wrong
    block-table entry brings in is another sequence's page.
    """
    slots = slice(number * PAGE_SIZE, (number + 1) * PAGE_SIZE)

    def damage(cache: DynamicCache) -> None:
        for mine, theirs in zip(cache.layers, other.layers, strict=True):
            mine.keys[:, :, slots] = theirs.keys[:, :, slots]
            mine.values[:, :, slots] = theirs.values[:, :, slots]

    return damage
