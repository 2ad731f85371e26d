"""Owns what the engine is asked to do: a request of token ids, and the sequence that serves it."""

from dataclasses import dataclass, field
from typing import Literal

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class Request:
    """Token ids in. A sequence ends after a token of `stop_ids`, or at `max_new_tokens`.

    `forced_ids` (one per output token) are fed on in place of the engine's own choice, which is still computed.
    """

    id: str
    prompt_ids: tuple[int, ...]
    arrival: int = 0
    max_new_tokens: int = 16
    stop_ids: tuple[int, ...] = ()
    forced_ids: tuple[int, ...] | None = None


@dataclass
class Sequence:
    """A request that holds pages of the KV cache. `block_table[i]` is the page of positions i*page_size and up."""

    request: Request
    block_table: list[int]
    output_ids: list[int] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        return len(self.request.prompt_ids) + len(self.output_ids)

    @property
    def last_token(self) -> int:
        return self.output_ids[-1]

    @property
    def next_forced(self) -> int | None:
        """The id to feed on after the next step, if this is a forced pass."""
        forced = self.request.forced_ids
        return None if forced is None else forced[len(self.output_ids)]

    def finish_reason(self) -> FinishReason | None:
        """`stop`, `length`, or None while the sequence goes on."""
        if self.output_ids and self.output_ids[-1] in self.request.stop_ids:
            return "stop"
        limit = self.request.max_new_tokens
        if self.request.forced_ids is not None:
            limit = min(limit, len(self.request.forced_ids))
        return "length" if len(self.output_ids) >= limit else None
