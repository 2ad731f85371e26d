"""Owns the boundary between harness and engines: what a target and a session must offer."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from graphcheck.schema.attempt import Attempt
from graphcheck.schema.base import AxisValue, Record
from graphcheck.schema.capabilities import Capabilities
from graphcheck.schema.events import Event
from graphcheck.schema.journal import Journal
from graphcheck.schema.suite import Workload


class Launch(Record):
    """Everything a target needs to start one attempt."""

    attempt: Attempt
    model_dir: Path
    settings: dict[str, AxisValue]
    """Every axis of the target with its value in this cell: defaults, the matrix's settings, the cell's axes."""


class Session(Protocol):
    """A running attempt. The supervisor alone reads it, decides when it ends, and kills it."""

    num_ranks: int

    def events(self, timeout: float) -> Sequence[Event]:
        """Records that arrived since the last call; waits up to `timeout` seconds for the first one."""
        ...

    def journals(self) -> Sequence[Journal]:
        """One snapshot a rank, never blocking; empty for a target without journals."""
        ...

    def release(self) -> None:
        """Tells the ranks that all of them are done, so that they leave."""
        ...

    def dump(self) -> Mapping[int, str]:
        """Main-thread stack of each living rank, innermost frame first, or why it gives none; empty if none can."""
        ...

    def kill(self) -> None:
        """Kills every process of the attempt and frees what it holds. Idempotent."""
        ...


class Target(Protocol):
    """An engine. One object serves a whole run and may keep warm helpers between attempts."""

    def describe(self) -> Capabilities: ...

    def check(self, settings: Mapping[str, AxisValue]) -> None:
        """Checks settings that hang together, before anything starts.

        Raises:
            UsageError: no cell can run with them.
        """
        ...

    def start(self, launch: Launch, workload: Workload, out_dir: Path) -> Session:
        """Starts one attempt; logs and stacks go under `out_dir`. Raises TargetError if nothing could start."""
        ...

    def close(self) -> None:
        """Ends whatever the target kept warm. Idempotent."""
        ...
