"""Owns the interface of a graph backend: capture, replay, destroy, and work that is put on the graph by hand."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from graphcheck.engine.graphs.trace import TracedOp

LAUNCH, WAIT = "launch", "wait"
"""Verbs that begin the labels under which a collective calls its two parts; its site follows."""


@dataclass(frozen=True)
class GraphKey:
    """What a graph was captured for. A graph serves a step only if all four agree."""

    phase: str
    query_len: int
    bucket: int
    variant: str = "default"

    def __str__(self) -> str:
        return f"{self.phase} bucket {self.bucket} (query_len {self.query_len}, {self.variant})"


class Graph(Protocol):
    """One captured step over fixed memory. No model code runs at replay."""

    @property
    def trace(self) -> list[TracedOp] | None:
        """Every op as captured, in order, collectives as `launch SITE` and `wait SITE`; None if the backend was not
        asked for it."""
        ...

    def replay(self) -> None: ...

    def poison(self) -> None:
        """Fills the memory that only a replay writes with NaN, where the backend can reach it."""
        ...

    def destroy(self) -> None:
        """Frees what the graph holds. Must come before its communicator is destroyed."""
        ...


class GraphBackend(Protocol):
    """Captures and replays; one object a rank."""

    name: str

    def warm_up(self, step: Callable[[], None]) -> None:
        """Runs `step` so that nothing is left to be created for the first time inside a capture."""
        ...

    def capture(self, key: GraphKey, step: Callable[[], None]) -> Graph:
        """Records `step`.

        Raises:
            CaptureError: the step cannot be captured; names the op, the bucket and what to try.
        """
        ...

    def call(self, work: Callable[[], None], label: str) -> None:
        """Runs `work` now and, while a capture is open, at each replay of the graph as well; one op of its trace."""
        ...


class NoGraphs:
    """The backend of an engine whose graphs are off."""

    name = "none"

    def warm_up(self, step: Callable[[], None]) -> None:
        raise NotImplementedError("graphs are off")

    def capture(self, key: GraphKey, step: Callable[[], None]) -> Graph:
        raise NotImplementedError("graphs are off")

    def call(self, work: Callable[[], None], label: str) -> None:
        work()
