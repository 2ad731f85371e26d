"""Owns running the reference's worker within the test's own process: its job, its code, its lines, and no start-up."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from graphcheck.schema.events import EVENT, Event, ExitEvent
from graphcheck.schema.journal import Journal
from graphcheck.targets.transformers import worker


class InlineSession:
    """Takes the place of WorkerSession, and has run to its end once it is made."""

    num_ranks = 1

    def __init__(self, job: Path, log: Path) -> None:
        lines = log.with_suffix(".events")
        reporter = worker.Reporter(os.open(lines, os.O_WRONLY | os.O_CREAT))
        with _settings_of_the_worker():
            worker.run(worker.Job.model_validate_json(job.read_text()), reporter)
        reporter._stream.close()
        self._events: list[Event] = [EVENT.validate_json(line) for line in lines.read_bytes().splitlines()]
        self._events.append(ExitEvent(rank=0, status=0))

    def events(self, timeout: float) -> Sequence[Event]:
        events, self._events = self._events, []
        return events

    def journals(self) -> Sequence[Journal]:
        return ()

    def release(self) -> None: ...

    def dump(self) -> Mapping[int, str]:
        return {}

    def kill(self) -> None: ...


@contextmanager
def _settings_of_the_worker() -> Iterator[None]:
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)
