"""Owns the journal: one small record a rank in memory that every rank and the supervisor map. Standard library only.

A rank writes its own record and never locks, so others can read it while the rank is stuck. Every field is one
aligned 64-bit word; a tag's number is written last, so that a reader who finds the number finds the whole tag.
Behind the records lie the names of a step's sites, and one trail a rank: a word a site, into which the device itself
writes the number of the step that passed it, also while the host is stuck.
"""

import mmap
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, get_args

Phase = Literal["start", "load", "capture", "prefill", "decode", "teardown", "done"]
PHASES: tuple[Phase, ...] = get_args(Phase)
WAITS = ("", "wait_for_peers", "wait_for_collective", "wait_for_device", "wait_for_release")
KINDS = ("reduce", "gather")

NUM_TAGS = 8
_TAG_WORDS = 5
_COMPARED_WORDS = 4
"""Number, kind, rows, bytes; the site comes last and is for the story alone."""
_SITES_BYTES = 64 * 1024
_TRAIL_BYTES = 16 * 1024
MOST_SITES = _TRAIL_BYTES // 8


class Word(IntEnum):
    """Index of each counter of a record."""

    PHASE = 0
    STEP = 1
    COLLECTIVE = 2
    UNIT = 3
    BEAT = 4
    FINISHED = 5
    WAIT = 6
    WAIT_SINCE_NS = 7
    LAUNCHED = 8
    REPLAY = 9
    VOTES = 10
    EVEN_VOTE = 11
    ODD_VOTE = 12


_TAGS_AT = len(Word)
_NUM_WORDS = _TAGS_AT + NUM_TAGS * _TAG_WORDS
_RECORD_BYTES = 4096


@dataclass(frozen=True)
class Tag:
    """One collective as announced before it is entered. `number` counts from 1, over the whole life of a rank."""

    number: int
    kind: str
    rows: int
    nbytes: int
    site: int


@dataclass(frozen=True)
class Trail:
    """How far the device has come in the step that was launched last: it has passed `passed` of `sites`, in order.

    `step` counts launched steps from 1, over the whole life of a rank; `replay` counts replays, 0 for an eager step.
    """

    step: int
    replay: int
    sites: tuple[str, ...]
    passed: frozenset[str]


@dataclass(frozen=True)
class Snapshot:
    """A record as read at one moment. `tags` are the last ones, oldest first, with their sites' names; `trail` is
    None where the device leaves none."""

    rank: int
    phase: Phase
    step: int
    collective: int
    unit: int
    beat: int
    finished: bool
    waiting: str
    waiting_seconds: float
    tags: tuple[tuple[Tag, str], ...]
    trail: Trail | None


class JournalMemory:
    """The mapped records of all ranks of an attempt, and the table of site names behind them."""

    def __init__(self, file: int, num_ranks: int) -> None:
        """Maps the journal behind the file descriptor `file`, which may be closed afterwards."""
        self.num_ranks = num_ranks
        self._mmap = mmap.mmap(file, self.num_bytes(num_ranks))
        self._words = memoryview(self._mmap).cast("q")

    @classmethod
    def create(cls, num_ranks: int) -> tuple["JournalMemory", int]:
        """New records in memory that has no name, and the file descriptor through which ranks map it."""
        file = os.memfd_create("graphcheck-journal")
        os.truncate(file, cls.num_bytes(num_ranks))
        return cls(file, num_ranks), file

    @staticmethod
    def num_bytes(num_ranks: int) -> int:
        """Size of the records of `num_ranks` ranks, the site names and the trails."""
        return num_ranks * (_RECORD_BYTES + _TRAIL_BYTES) + _SITES_BYTES

    def close(self) -> None:
        self._words.release()
        self._mmap.close()

    def write_sites(self, names: Sequence[str]) -> None:
        """Stores the names to which tags and trails refer by index; every rank writes the same table."""
        text = "\n".join(names).encode()[: _SITES_BYTES - 8]
        start = self.num_ranks * _RECORD_BYTES
        self._mmap[start + 8 : start + 8 + len(text)] = text
        self._words[start // 8] = len(text)

    def snapshot(self, rank: int) -> Snapshot:
        """Reads one record; safe at any time."""
        words = self._words
        base = rank * _RECORD_BYTES // 8
        collective = words[base + Word.COLLECTIVE]
        sites = self._sites()
        tags = [self.tag(rank, number) for number in range(max(1, collective - NUM_TAGS + 1), collective + 1)]
        since = words[base + Word.WAIT_SINCE_NS]
        waiting = WAITS[words[base + Word.WAIT]]
        return Snapshot(
            rank=rank,
            phase=PHASES[words[base + Word.PHASE]],
            step=words[base + Word.STEP],
            collective=collective,
            unit=words[base + Word.UNIT],
            beat=words[base + Word.BEAT],
            finished=bool(words[base + Word.FINISHED]),
            waiting=waiting,
            waiting_seconds=(time.monotonic_ns() - since) / 1e9 if waiting else 0.0,
            tags=tuple((tag, sites[tag.site] if tag.site < len(sites) else "?") for tag in tags if tag is not None),
            trail=self._trail(rank, tuple(sites)),
        )

    def agree(self, number: int, ranks: Sequence[int]) -> bool:
        """True if these ranks have all announced collective `number`, and the same one but for its site.

        A rank that is further already still agrees: its entry stays in the ring for NUM_TAGS collectives.
        """
        starts = [_tag_start(rank, number) for rank in ranks]
        # Asked before every collective: words are compared as they lie, and no tag is made of them.
        first, *others = (self._words[start : start + _COMPARED_WORDS] for start in starts)
        return first[0] == number and all(other == first for other in others)

    def tag(self, rank: int, number: int) -> Tag | None:
        """Tag `number` of a rank; None if it is not announced yet, or long gone."""
        start = _tag_start(rank, number)
        found, kind, rows, nbytes, site = self._words[start : start + _TAG_WORDS]
        return Tag(found, KINDS[kind], rows, nbytes, site) if found == number else None

    def vote(self, rank: int, number: int) -> int | None:
        """Vote `number` of a rank; None if it is not cast yet. A rank that waits for all is at most one ahead."""
        base = rank * _RECORD_BYTES // 8
        return self._words[base + _vote_word(number)] if self._words[base + Word.VOTES] >= number else None

    def trail_words(self, rank: int) -> memoryview:
        """A rank's trail as bytes of 64-bit words, one a site in the order of a step; begins at a whole page."""
        start = self._trail_start(rank)
        return memoryview(self._mmap)[start : start + _TRAIL_BYTES]

    def _trail_start(self, rank: int) -> int:
        return self.num_ranks * _RECORD_BYTES + _SITES_BYTES + rank * _TRAIL_BYTES

    def _trail(self, rank: int, sites: tuple[str, ...]) -> Trail | None:
        base = rank * _RECORD_BYTES // 8
        step = self._words[base + Word.LAUNCHED]
        if step == 0:
            return None
        start = self._trail_start(rank) // 8
        passed = frozenset(site for number, site in enumerate(sites) if self._words[start + number] == step)
        return Trail(step, self._words[base + Word.REPLAY], sites, passed)

    def _sites(self) -> list[str]:
        start = self.num_ranks * _RECORD_BYTES
        length = self._words[start // 8]
        return self._mmap[start + 8 : start + 8 + length].decode().split("\n")

    def writer(self, rank: int) -> "JournalWriter":
        return JournalWriter(self, self._words, rank)


class JournalWriter:
    """One rank's hand on its own record."""

    def __init__(self, memory: JournalMemory, words: memoryview, rank: int) -> None:
        self.memory = memory
        self._words = words
        self._rank = rank
        self._base = rank * _RECORD_BYTES // 8
        self._site_index: dict[str, int] = {}

    def phase(self, phase: Phase) -> None:
        self._words[self._base + Word.PHASE] = PHASES.index(phase)

    def step(self, number: int) -> None:
        """The scheduler's step `number` has begun. Numbers start again with each run, so a unit counts as well."""
        self._words[self._base + Word.STEP] = number
        self.unit()

    def unit(self) -> None:
        """One more unit of work is done: a layer loaded, a bucket captured, a step begun."""
        self._words[self._base + Word.UNIT] += 1

    def beat(self) -> None:
        """The rank is alive; this is not progress."""
        self._words[self._base + Word.BEAT] += 1

    def finished(self) -> None:
        self._words[self._base + Word.FINISHED] = 1

    def sites(self, names: Sequence[str]) -> None:
        """Stores the names of a step's sites, in its order; every rank writes the same."""
        self.memory.write_sites(names)
        self._site_index = {name: index for index, name in enumerate(names)}

    def trail_words(self) -> memoryview:
        """See JournalMemory.trail_words."""
        return self.memory.trail_words(self._rank)

    def launched(self, step: int, replay: int) -> None:
        """Device step `step`, from 1, is about to be launched; `replay` as in Trail."""
        self._words[self._base + Word.REPLAY] = replay
        self._words[self._base + Word.LAUNCHED] = step

    def vote(self, value: int) -> int:
        """Casts the next vote, a signed 64-bit word, and returns its number, from 1."""
        number = self._words[self._base + Word.VOTES] + 1
        self._words[self._base + _vote_word(number)] = value
        self._words[self._base + Word.VOTES] = number
        return number

    def announce(self, kind: str, rows: int, nbytes: int, site: str) -> int:
        """Writes the tag of the next collective and returns its number."""
        number = self._words[self._base + Word.COLLECTIVE] + 1
        start = _tag_start(self._rank, number)
        values = KINDS.index(kind), rows, nbytes, self._site_index[site]
        for offset, value in enumerate(values, start=1):
            self._words[start + offset] = value
        self._words[start] = number
        self._words[self._base + Word.COLLECTIVE] = number
        return number

    @contextmanager
    def waiting(self, wait: str) -> Iterator[None]:
        """Declares a wait: a rank that moves only inside it is not making progress."""
        self._words[self._base + Word.WAIT_SINCE_NS] = time.monotonic_ns()
        self._words[self._base + Word.WAIT] = WAITS.index(wait)
        try:
            yield
        finally:
            self._words[self._base + Word.WAIT] = 0


def _vote_word(number: int) -> Word:
    return Word.ODD_VOTE if number % 2 else Word.EVEN_VOTE


def _tag_start(rank: int, number: int) -> int:
    """Index of the first word of a rank's ring entry for collective `number`."""
    return rank * _RECORD_BYTES // 8 + _TAGS_AT + number % NUM_TAGS * _TAG_WORDS


assert _NUM_WORDS * 8 <= _RECORD_BYTES
