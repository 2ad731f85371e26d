"""Owns a prompt's answer as one rank reported it in one pass, put together from its events; judges nothing."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from graphcheck.schema.events import FinishedEvent, StepEvent


@dataclass(frozen=True)
class Token:
    """One output token: the id that the engine computed, and where it was computed.

    `lane` is the row of the batch; `engine_step` counts the engine's steps, not the prompt's tokens.
    """

    id: int
    finite: bool
    engine_step: int
    lane: int
    bucket: int | None
    live: int


@dataclass(frozen=True)
class Transcript:
    """The tokens of one prompt in order. `broken` says why they cannot be read as one answer.

    `ends` is what the rank said of the answer's end; empty if it said nothing, more than one if it said so again.
    """

    prompt: str
    run: int
    rank: int
    tokens: tuple[Token, ...] = ()
    broken: str | None = None
    ends: tuple[FinishedEvent, ...] = ()

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(token.id for token in self.tokens)


TranscriptKey = tuple[str, int, int]
"""Prompt id, run (pass over the suite), rank."""


def transcripts(events: Iterable[StepEvent | FinishedEvent], feed: str) -> dict[TranscriptKey, Transcript]:
    """Every answer that the events hold. `feed` is the attempt's ("free" or "forced").

    An answer is broken when a token is reported twice or left out, or when a free pass fed on an id that it did
    not pick: then the tokens no longer follow from the engine's own choices.
    """
    reported: dict[TranscriptKey, list[tuple[int, Token, int]]] = defaultdict(list)
    ends: dict[TranscriptKey, list[FinishedEvent]] = defaultdict(list)
    for event in events:
        if isinstance(event, FinishedEvent):
            ends[event.request, event.run, event.rank].append(event)
            continue
        for lane, request in enumerate(event.requests):
            token = Token(event.argmax[lane], event.finite[lane], event.step, lane, event.bucket, event.live)
            reported[request, event.run, event.rank].append((event.index[lane], token, event.ids[lane]))
    return {key: _transcript(key, tokens, feed, tuple(ends.get(key, ()))) for key, tokens in reported.items()}


def _transcript(
    key: TranscriptKey, reported: list[tuple[int, Token, int]], feed: str, ends: tuple[FinishedEvent, ...]
) -> Transcript:
    prompt, run, rank = key
    broken = None
    for position, (index, token, fed) in enumerate(reported):
        if index != position:
            broken = f"token {index} was reported where token {position} was due"
        elif feed == "free" and fed != token.id:
            broken = f"token {position}: fed on {fed}, but picked {token.id}"
        if broken:
            break
    return Transcript(prompt, run, rank, tuple(token for _, token, _ in reported), broken, ends)
