"""Owns a fake target whose ranks say what they have loaded, and a small code base for them to have loaded."""

from collections.abc import Callable, Sequence
from pathlib import Path

from graphcheck.schema.events import Event, LoadedEvent, PhaseEvent
from graphcheck.schema.provenance import Library, Loaded
from graphcheck.schema.suite import Workload
from graphcheck.targets.base import Launch
from graphcheck.targets.fake import FakeSession, FakeTarget
from tests.fake_world import FakeWorld

SOURCES = {"engine.step": "a" * 64, "engine.rope": "b" * 64}
LIBRARIES = {
    "libtorch_cpu.so": Library(build_id="c" * 40, needed=("libc.so.6",)),
    "libnccl.so.2": Library(build_id="d" * 40),
    "libwithout.so": Library(build_id=""),
}
GOOD = Loaded(sources=SOURCES, libraries=LIBRARIES)

Loads = Callable[[str, int], Loaded]
"""Cell name, rank -> what that rank has loaded."""


class LoadingTarget(FakeTarget):
    """Its ranks say what they have loaded when they begin to prefill."""

    def __init__(self, world: FakeWorld, loads: Loads = lambda cell, rank: GOOD) -> None:
        super().__init__(world.clock.sleep, gives_forced=True)
        self._loads = loads

    def start(self, launch: Launch, workload: Workload, out_dir: Path) -> FakeSession:
        session = super().start(launch, workload, out_dir)
        cell, events = launch.attempt.cell.name, session.events

        def with_loaded(timeout: float) -> Sequence[Event]:
            given = list(events(timeout))
            entered = [event.rank for event in given if isinstance(event, PhaseEvent) and event.phase == "prefill"]
            return [*given, *(LoadedEvent(rank=rank, loaded=self._loads(cell, rank)) for rank in entered)]

        session.events = with_loaded  # type: ignore[method-assign]
        return session
