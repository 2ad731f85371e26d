"""Owns a running attempt of the bundled engine: its rank processes, their pipes, journals and stacks."""

import os
import select
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from pydantic import ValidationError

from graphcheck.engine import journal as engine_journal
from graphcheck.engine.journal import JournalMemory
from graphcheck.engine.site_names import DONE
from graphcheck.schema.errors import TargetError
from graphcheck.schema.events import EVENT, ErrorEvent, Event, ExitEvent
from graphcheck.schema.journal import Journal, Tag, Trail
from graphcheck.targets.bundled.fork_client import ForkServer
from graphcheck.targets.bundled.job import Job

_STACK_SECONDS = 0.5
_OUTERMOST_FRAME = "in _run_module_as_main\n"
"""Of the fork server, and so of what it forked; the handler writes frame by frame, this one last."""
_KILL_SECONDS = 5.0


class BundledSession:
    """See targets.base.Session. Everything it holds is freed by `kill`."""

    def __init__(self, server: ForkServer, job: Job, out_dir: Path) -> None:
        self.num_ranks = job.num_ranks
        self._server, self._out_dir = server, out_dir
        self._held = ExitStack()
        self._processes: list[int] = []
        self._exited: set[int] = set()
        self._server_is_lost = self._mourned = False
        self._partial: dict[int, bytes] = {}
        self._pipes: list[int] = []
        self._release = -1
        self._job_path = out_dir / "job.json"
        self._job_path.write_text(job.model_dump_json(), encoding="utf-8")
        try:
            self._start()
        except BaseException:
            self.kill()
            raise

    def _start(self) -> None:
        listener = self._held.enter_context(socket.create_server(("127.0.0.1", 0)))
        with ExitStack() as lent:
            self._journal, journal_file = JournalMemory.create(self.num_ranks)
            self._held.callback(self._journal.close)
            lent.callback(os.close, journal_file)
            supervisor = os.pidfd_open(os.getpid())
            lent.callback(os.close, supervisor)
            release_read, self._release = os.pipe()
            lent.callback(os.close, release_read)
            for rank in range(self.num_ranks):
                events_read, events_write = os.pipe()
                self._pipes.append(events_read)
                with ExitStack() as own:
                    own.callback(os.close, events_write)
                    os.set_blocking(events_read, False)
                    log = os.open(self._out_dir / f"rank{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
                    own.callback(os.close, log)
                    files = [journal_file, events_write, log, release_read, supervisor, listener.fileno()]
                    self._processes.append(self._server.fork(rank, self._job_path, files))

    def events(self, timeout: float) -> Sequence[Event]:
        """See Session.events. Exits of ranks are among them, after all that the rank wrote."""
        open_pipes = [pipe for pipe in self._pipes if pipe >= 0]
        ready, _, _ = select.select([*open_pipes, self._server.fileno()], [], [], timeout)
        events: list[Event] = []
        for rank, pipe in enumerate(self._pipes):
            if pipe in ready:
                events += self._read(rank, pipe)
        for rank, process in enumerate(self._processes):
            if rank not in self._exited and (exit_event := self._exit(rank, process)) is not None:
                events += self._read(rank, self._pipes[rank])
                if self._server_is_lost and not self._mourned:
                    self._mourned = True
                    events.append(_server_died())
                events.append(exit_event)
        return events

    def journals(self) -> Sequence[Journal]:
        """See Session.journals."""
        return [self._snapshot(rank) for rank in range(self.num_ranks)]

    def release(self) -> None:
        """See Session.release."""
        self._close_release()

    def dump(self) -> Mapping[int, str]:
        """See Session.dump: each living rank's own signal handler writes its main thread's stack.

        A rank that was stopped runs no handler: that it was is then all that is told of it.
        """
        living = [rank for rank in range(self.num_ranks) if rank not in self._exited]
        before = {rank: len(self._stack_file(rank)) for rank in living}
        for rank in living:
            with suppress(ProcessLookupError):
                os.kill(self._processes[rank], signal.SIGUSR1)
        deadline = time.monotonic() + _STACK_SECONDS
        stacks: dict[int, str] = {}
        while len(stacks) < len(living) and time.monotonic() < deadline:
            time.sleep(0.005)
            for rank in living:
                text = self._stack_file(rank)[before[rank] :]
                if text.endswith(_OUTERMOST_FRAME):
                    stacks[rank] = text
        return {rank: stacks.get(rank) or _why_silent(self._processes[rank]) for rank in living}

    def kill(self) -> None:
        """See Session.kill."""
        for rank, process in enumerate(self._processes):
            if rank not in self._exited:
                _kill(process)
        deadline = time.monotonic() + _KILL_SECONDS
        for rank, process in enumerate(self._processes):
            while rank not in self._exited and self._exit(rank, process) is None:
                if time.monotonic() > deadline:
                    # A server that does not answer cannot report the ranks, which are dead by now; the next attempt
                    # gets a new one.
                    self._server.kill()
                select.select([self._server.fileno()], [], [], 0.1)
        self._close_release()
        for rank, pipe in enumerate(self._pipes):
            if pipe >= 0:
                os.close(pipe)
                self._pipes[rank] = -1
        self._held.close()

    def _read(self, rank: int, pipe: int) -> list[Event]:
        if pipe < 0:
            return []
        data = self._partial.pop(rank, b"")
        while True:
            try:
                chunk = os.read(pipe, 1 << 20)
            except BlockingIOError:
                break
            if not chunk:
                os.close(pipe)
                self._pipes[rank] = -1
                break
            data += chunk
        *lines, self._partial[rank] = data.split(b"\n")
        return [_parse(rank, line) for line in lines]

    def _exit(self, rank: int, process: int) -> ExitEvent | None:
        try:
            status = self._server.exit_status(process)
        except TargetError:
            # Without the server no status can be had; the rank must still end.
            self._server_is_lost = True
            with suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
            self._exited.add(rank)
            return ExitEvent(rank=rank)
        if status is None:
            return None
        self._exited.add(rank)
        return ExitEvent(rank=rank, status=status) if status >= 0 else ExitEvent(rank=rank, signal=-status)

    def _close_release(self) -> None:
        if self._release >= 0:
            os.close(self._release)
            self._release = -1

    def _stack_file(self, rank: int) -> str:
        path = self._out_dir / f"rank{rank}.stack"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def _snapshot(self, rank: int) -> Journal:
        record = self._journal.snapshot(rank)
        return Journal(
            rank=rank,
            phase=record.phase,
            step=record.step,
            collective=record.collective,
            unit=record.unit,
            beat=record.beat,
            finished=record.finished,
            waiting=record.waiting or None,
            waiting_seconds=record.waiting_seconds if record.waiting else None,
            tags=tuple(
                Tag(number=tag.number, kind=tag.kind, rows=tag.rows, nbytes=tag.nbytes, site=site)
                for tag, site in record.tags
            ),
            trail=_trail(record.trail),
        )


def _trail(trail: engine_journal.Trail | None) -> Trail | None:
    if trail is None:
        return None
    passed = [site for site in trail.sites if site in trail.passed]
    collectives = [site for site in trail.sites if site + DONE in trail.sites]
    inside = [site for site in collectives if site in trail.passed and site + DONE not in trail.passed]
    return Trail(
        step=trail.step,
        replay=trail.replay or None,
        num_passed=len(passed),
        num_sites=len(trail.sites),
        last=passed[-1] if passed else None,
        inside=inside[0] if inside else None,
        collective=collectives.index(inside[0]) + 1 if inside else None,
    )


def _why_silent(process: int) -> str:
    """That a process was stopped, if it was. The state follows the name in parentheses, see proc_pid_stat(5)."""
    with suppress(OSError):
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        return "stopped by a signal" if state in "Tt" else ""
    return ""


def _kill(process: int) -> None:
    """A rank leads its own process group, but not before it has got so far as to make it."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError):
            kill(process, signal.SIGKILL)


def _server_died() -> ErrorEvent:
    """The cause of what follows: its ranks are killed, since nobody could tell how they end."""
    return ErrorEvent(
        rank=0,
        kind="crash",
        error="ForkServerDied",
        message="the process that forks the ranks is gone: stopped or killed from outside, or out of memory",
        phase="start",
    )


def _parse(rank: int, line: bytes) -> Event:
    try:
        event = EVENT.validate_json(line)
    except ValidationError:
        event = None
    if event is None or event.rank != rank:
        return ErrorEvent(
            rank=rank,
            kind="crash",
            error="GarbledEvent",
            message=f"rank {rank} wrote {line[:80]!r}: not an event of its own; look at its log",
            phase="start",
        )
    return event
