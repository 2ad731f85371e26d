"""Owns who runs in which step. Deterministic: a function of the requests and of the tokens committed, nothing else.

Every rank runs its own copy. The copies agree only while the ranks' tokens agree; nothing is sent between them.
"""

from collections import deque
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Literal

from graphcheck.engine.blocks import BlockAllocator
from graphcheck.engine.errors import RequestError
from graphcheck.engine.request import FinishReason, Request, Sequence


@dataclass(frozen=True)
class Step:
    """One engine step, all prefill (one new sequence) or all decode (every running one, in lane order)."""

    number: int
    phase: Literal["prefill", "decode"]
    sequences: tuple[Sequence, ...]


@dataclass(frozen=True)
class Finished:
    """A sequence that ended in a step."""

    sequence: Sequence
    reason: FinishReason


class Scheduler:
    """Continuous batching: sequences join when they have arrived and a lane and pages are free, first come first.

    A lane is a row of the batch. When a sequence leaves, those after it move up, so that live lanes are always
    0..n-1 and a bucket's spare lanes lie behind them.
    """

    def __init__(self, *, lanes: int, context: int, blocks: BlockAllocator) -> None:
        self._lanes = lanes
        self._context = context
        self._blocks = blocks
        self._waiting: deque[Request] = deque()
        self._running: list[Sequence] = []
        self._step = 0

    def submit(self, request: Request) -> None:
        """Queues a request behind all that arrive no later.

        Raises:
            RequestError: the request could never be served, whatever else runs.
        """
        num_tokens = len(request.prompt_ids) + request.max_new_tokens
        if not request.prompt_ids:
            raise RequestError(request.id, f"request {request.id}: a prompt needs at least one token; give it one")
        if request.max_new_tokens < 1:
            raise RequestError(
                request.id,
                f"request {request.id}: {request.max_new_tokens} new tokens: prefill makes one; ask for one or more",
            )
        if request.forced_ids == ():
            raise RequestError(
                request.id,
                f"request {request.id}: no forced ids: a forced pass feeds one token or more; give it some, or None",
            )
        if num_tokens > self._context:
            raise RequestError(
                request.id,
                f"request {request.id}: {len(request.prompt_ids)} prompt + {request.max_new_tokens} new tokens do not "
                f"fit the context of {self._context}; shorten the prompt or raise `context`",
            )
        if self._reservation(request) > self._blocks.num_pages:
            raise RequestError(
                request.id,
                f"request {request.id}: needs {self._reservation(request)} KV pages of {self._blocks.num_pages}; "
                "raise `num_pages`",
            )
        self._waiting.append(request)
        self._waiting = deque(sorted(self._waiting, key=lambda waiting: waiting.arrival))

    def next_step(self) -> Step | None:
        """The next step, or None when every request has finished. Admits, and grows block tables."""
        if not self._running and self._waiting and self._waiting[0].arrival > self._step:
            self._step = self._waiting[0].arrival
        admitted = self._admit()
        if admitted is not None:
            return Step(self._step, "prefill", (admitted,))
        if not self._running:
            return None
        for sequence in self._running:
            self._blocks.grow(sequence.block_table, sequence.num_tokens)
        return Step(self._step, "decode", tuple(self._running))

    def commit(self, step: Step, next_ids: Seq[int]) -> list[Finished]:
        """Appends one token to each sequence of `step`; those that end leave and give their pages back."""
        finished = []
        for sequence, token in zip(step.sequences, next_ids, strict=True):
            sequence.output_ids.append(token)
            reason = sequence.finish_reason()
            if reason is not None:
                finished.append(Finished(sequence, reason))
        for done in finished:
            self._running.remove(done.sequence)
            self._blocks.release(done.sequence.block_table, self._reservation(done.sequence.request))
        self._step += 1
        return finished

    def _admit(self) -> Sequence | None:
        if not self._waiting or len(self._running) >= self._lanes:
            return None
        request = self._waiting[0]
        if request.arrival > self._step or not self._blocks.can_reserve(self._reservation(request)):
            return None
        self._waiting.popleft()
        self._blocks.reserve(self._reservation(request))
        sequence = Sequence(request, [])
        self._blocks.grow(sequence.block_table, len(request.prompt_ids))
        self._running.append(sequence)
        return sequence

    def _reservation(self, request: Request) -> int:
        # The last token of a sequence is never fed back, so its KV is never written.
        return self._blocks.pages_for(len(request.prompt_ids) + request.max_new_tokens - 1)
