"""Owns what one rank process does, from fork to exit. The same work runs under the supervisor and under torchrun."""

import faulthandler
import os
import resource
import select
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from graphcheck.engine.config import EngineConfig
from graphcheck.engine.engine import Engine
from graphcheck.engine.journal import JournalMemory, JournalWriter
from graphcheck.engine.request import Request
from graphcheck.schema.events import Phase
from graphcheck.schema.suite import Workload
from graphcheck.targets.bundled.job import Job
from graphcheck.targets.bundled.mapping import EventWriter

_BEAT_MS = 100
# The supervisor owns every deadline; the library's own must never come first.
NEVER = timedelta(days=7)


@dataclass(frozen=True)
class RankFiles:
    """File descriptors that a rank is born with, in the order in which they travel.

    `release` becomes readable when the rank may leave; `supervisor` is a pidfd; `listener` is the store's bound
    and listening socket, used by rank 0.
    """

    journal: int
    events: int
    log: int
    release: int
    supervisor: int
    listener: int


def run_rank(rank: int, job_path: str, files: RankFiles) -> int:
    """The whole life of a supervised rank; returns its exit status."""
    os.setsid()
    os.dup2(files.log, 1)
    os.dup2(files.log, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    job = Job.model_validate_json(Path(job_path).read_bytes())
    with open(Path(job_path).parent / f"rank{rank}.stack", "a", encoding="utf-8") as stacks:
        faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=False)
        journal = JournalMemory(files.journal, job.num_ranks).writer(rank)
        _watch(files.supervisor, journal)

        def connect() -> None:
            port = socket.socket(fileno=os.dup(files.listener)).getsockname()[1]
            _set_rank_environment(rank, job.num_ranks, port)
            store = TCPStore(
                os.environ["MASTER_ADDR"],
                port,
                job.num_ranks,
                is_master=rank == 0,
                timeout=NEVER,
                wait_for_workers=False,
                master_listen_fd=files.listener if rank == 0 else None,
            )
            dist.init_process_group("gloo", store=store, rank=rank, world_size=job.num_ranks, timeout=NEVER)

        with os.fdopen(files.events, "w", encoding="utf-8") as events:
            return work(job, rank, journal, EventWriter(rank, events), connect, lambda: wait_for_release(files.release))


def work(
    job: Job,
    rank: int,
    journal: JournalWriter,
    events: EventWriter,
    connect: Callable[[], None],
    all_done: Callable[[], None],
) -> int:
    """Runs a job on this rank and reports through `events`; returns the exit status.

    `connect` makes the process group; `all_done` returns when every rank has finished. A rank must not leave
    earlier: a peer that it still owes a collective would see a reset connection in place of a silent hang.
    """
    torch.set_num_threads(1)
    with suppress(OSError):
        # Ranks that outnumber the cores take turns faster as batch jobs.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    engine: Engine | None = None
    try:
        _enter("start", journal, events)
        if job.num_ranks > 1:
            connect()
        config = EngineConfig.from_settings(job.settings, frozenset(job.fixes_off))
        engine = Engine(job.model_dir, config, rank=rank, journal=journal)
        _enter("load", journal, events)
        engine.load()
        _enter("capture", journal, events)
        engine.capture()
        for run in range(job.workload.passes):
            events.run = run
            engine.run(_requests(job.workload), events.report)
        events.evidence(engine, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        events.phase("done")
        journal.phase("done")
        journal.finished()
        with journal.waiting("wait_for_release"):
            all_done()
        _enter("teardown", journal, events)
        engine.close()
        if job.num_ranks > 1:
            dist.destroy_process_group()
    except Exception as error:
        events.error(error)
        return 1
    return 0


def wait_for_release(release: int) -> None:
    """A declared wait: until the supervisor lets the ranks go."""
    select.select([release], [], [])


def _enter(phase: Phase, journal: JournalWriter, events: EventWriter) -> None:
    journal.phase(phase)
    events.phase(phase)


def _watch(supervisor: int, journal: JournalWriter) -> None:
    """Beats, and leaves at once when the supervisor is gone, so that no rank outlives it."""

    def watch() -> None:
        poll = select.poll()
        poll.register(supervisor, select.POLLIN)
        while not poll.poll(_BEAT_MS):
            journal.beat()
        os._exit(1)

    threading.Thread(target=watch, name="watch", daemon=True).start()


def _set_rank_environment(rank: int, num_ranks: int, port: int) -> None:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(num_ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
    }


def _requests(workload: Workload) -> list[Request]:
    return [Request(**dict(request)) for request in workload.requests]
