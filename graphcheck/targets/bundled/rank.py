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
from torch._C._distributed_c10d import Store, TCPStore

from graphcheck.engine.config import EngineConfig
from graphcheck.engine.device import Device, open_device
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
        _set_rank_environment(rank, job.num_ranks, files.listener)
        journal = JournalMemory(files.journal, job.num_ranks).writer(rank)
        _watch(files.supervisor, journal)

        def make_store() -> Store:
            return TCPStore(
                os.environ["MASTER_ADDR"],
                int(os.environ["MASTER_PORT"]),
                job.num_ranks,
                is_master=rank == 0,
                timeout=NEVER,
                wait_for_workers=False,
                master_listen_fd=files.listener if rank == 0 else None,
            )

        with os.fdopen(files.events, "w", encoding="utf-8") as events:
            return work(
                job, rank, journal, EventWriter(rank, events), make_store, lambda: wait_for_release(files.release)
            )


def work(
    job: Job,
    rank: int,
    journal: JournalWriter,
    events: EventWriter,
    make_store: Callable[[], Store],
    all_done: Callable[[], None],
) -> int:
    """Runs a job on this rank and reports through `events`; returns the exit status.

    `make_store` connects to the ranks' common store; `all_done` returns when every rank has finished. A rank must
    not leave earlier: a peer that it still owes a collective would see a reset connection, not a silent hang.
    """
    torch.set_num_threads(1)
    with suppress(OSError):
        # Ranks that outnumber the cores take turns faster as batch jobs.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    engine: Engine | None = None
    try:
        _enter("start", journal, events)
        config = EngineConfig.from_settings(job.settings, frozenset(job.fixes_off), job.delays_of(rank))
        device = open_device(config.device, int(os.environ.get("LOCAL_RANK") or 0), share=config.share_gpus)
        if config.tp > 1:
            _join_group(config, rank, device, make_store())
        engine = Engine(job.model_dir, config, rank=rank, device=device, journal=journal)
        _enter("load", journal, events)
        engine.load()
        _enter("capture", journal, events)
        engine.capture()
        events.loaded()
        for run in range(job.workload.passes):
            events.run = run
            engine.run(_requests(job.workload), events.report)
        events.loaded()
        events.evidence(engine, device, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        events.phase("done")
        journal.phase("done")
        journal.finished()
        with journal.waiting("wait_for_release"):
            all_done()
        _enter("teardown", journal, events)
        engine.close()
        if config.tp > 1:
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


def _join_group(config: EngineConfig, rank: int, device: Device, store: Store) -> None:
    """Makes the process group; with NCCL its communicator too, so that no capture has to."""
    nccl = config.allreduce == "nccl"
    device_id = device.torch_device if nccl else None
    # Symmetric memory takes only the store and the names of its peers from the group.
    dist.init_process_group(
        "nccl" if nccl else "gloo", store=store, rank=rank, world_size=config.tp, timeout=NEVER, device_id=device_id
    )


def _watch(supervisor: int, journal: JournalWriter) -> None:
    """Beats, and leaves at once when the supervisor is gone, so that no rank outlives it."""

    def watch() -> None:
        poll = select.poll()
        poll.register(supervisor, select.POLLIN)
        while not poll.poll(_BEAT_MS):
            journal.beat()
        os._exit(1)

    threading.Thread(target=watch, name="watch", daemon=True).start()


def _set_rank_environment(rank: int, num_ranks: int, listener: int) -> None:
    """What torchrun would set."""
    with socket.socket(fileno=os.dup(listener)) as bound:
        port = bound.getsockname()[1]
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
