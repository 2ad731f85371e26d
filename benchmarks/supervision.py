"""Measures what supervision costs: journals, polling and events against a bare engine, and the tags by themselves.

    python benchmarks/supervision.py [--repeats 5]

The bare engine runs the same workload in one process, with no supervisor and no events; both sides alternate in one
run of this program. A tag's cost is the time of a rendezvous over the time of the gloo gather that it precedes.
"""

import argparse
import json
import multiprocessing
import os
import socket
import statistics
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from graphcheck.engine.config import EngineConfig
from graphcheck.engine.device import CpuDevice
from graphcheck.engine.engine import Engine
from graphcheck.engine.journal import JournalMemory
from graphcheck.engine.rendezvous import Rendezvous
from graphcheck.engine.request import Request
from graphcheck.harness.planning.prepare import Ready, prepare
from graphcheck.harness.planning.request import Plan, RunRequest, make_plan
from graphcheck.harness.records.run_store import RunStore
from graphcheck.harness.running.execute import Execution, Surroundings
from graphcheck.harness.running.observe import UNOBSERVED
from graphcheck.targets.registry import load_target

COLLECTIVES = 500
ROWS, HIDDEN = 8, 128
SITE = "site"


def bare_seconds(ready: Ready) -> float:
    """Prefill and decode of a whole workload, reporting to nobody, in a fresh process scheduled as a rank is."""
    context = multiprocessing.get_context("fork")
    out: multiprocessing.SimpleQueue[float] = context.SimpleQueue()
    process = context.Process(target=_run_bare, args=(ready, out))
    process.start()
    process.join()
    return out.get()


def _run_bare(ready: Ready, out: "multiprocessing.SimpleQueue[float]") -> None:
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    torch.set_num_threads(1)
    journal, _ = JournalMemory.create(1)
    config = EngineConfig.from_settings(ready.planned.settings, frozenset())
    engine = Engine(ready.planned.model.path, config, rank=0, device=CpuDevice(), journal=journal.writer(0))
    engine.load()
    engine.capture()
    began = time.perf_counter()
    engine.run([Request(**dict(request)) for request in ready.workload.requests], lambda report: None)
    out.put(time.perf_counter() - began)


def supervised_seconds(plan: Plan, ready: Ready) -> float:
    """The same under supervision, as the rank's own clock has it."""
    with tempfile.TemporaryDirectory() as folder:
        finished = Execution(plan, RunStore(Path(folder)), UNOBSERVED, Surroundings()).run(ready)
    seconds = finished.facts.evidence[0].seconds
    return seconds["prefill"] + seconds["decode"]


def gather_microseconds(
    rank: int, tp: int, port: int, with_tags: bool, journal_file: int, out: "multiprocessing.Queue[float]"
) -> None:
    """One rank of a loop of gathers; rank 0 reports the mean time of one."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    torch.set_num_threads(1)
    store = TCPStore("127.0.0.1", port, tp, rank == 0, timedelta(seconds=60))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=tp)
    journal = JournalMemory(journal_file, tp).writer(rank)
    journal.sites([SITE])
    meeting = Rendezvous(journal, tp)
    sent, gathered = torch.zeros(ROWS * HIDDEN), torch.zeros(tp * ROWS * HIDDEN)
    gather = dist.all_gather_single if "all_gather_single" in dir(dist) else dist.all_gather_into_tensor
    gather(gathered, sent)
    began = time.perf_counter()
    for _ in range(COLLECTIVES):
        if with_tags:
            meeting.enter("gather", ROWS, sent.nbytes, SITE)
        gather(gathered, sent)
    if rank == 0:
        out.put((time.perf_counter() - began) / COLLECTIVES * 1e6)
    dist.destroy_process_group()


def tag_ratio(tp: int) -> float:
    """Time of a gather with its tag over one without."""
    context = multiprocessing.get_context("fork")
    means: list[float] = []
    for with_tags in (False, True):
        _, journal_file = JournalMemory.create(tp)
        out: multiprocessing.Queue[float] = context.Queue()
        port = free_port()
        ranks = [
            context.Process(target=gather_microseconds, args=(rank, tp, port, with_tags, journal_file, out))
            for rank in range(tp)
        ]
        for process in ranks:
            process.start()
        means.append(out.get(timeout=120))
        for process in ranks:
            process.join()
        os.close(journal_file)
    return means[1] / means[0]


def free_port() -> int:
    """A free port of the loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def main() -> None:
    """Prints the figures as JSON."""
    parser = argparse.ArgumentParser(description="Measure what supervision costs.")
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    tags = {tp: [tag_ratio(tp) for _ in range(repeats)] for tp in (2, 4)}
    plan = make_plan(RunRequest(select="tp=1"), load_target)
    ratios: dict[str, list[float]] = {}
    try:
        for one in prepare(plan, RunRequest(select="tp=1")):
            assert isinstance(one, Ready)
            pairs = [(supervised_seconds(plan, one), bare_seconds(one)) for _ in range(repeats)]
            ratios[one.planned.attempt.key] = [supervised / bare for supervised, bare in pairs]
    finally:
        plan.target.close()
    figures = {
        "supervised_over_bare": {key: round(statistics.median(values), 3) for key, values in ratios.items()},
        "gather_with_tag_over_without": {tp: round(statistics.median(values), 3) for tp, values in tags.items()},
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
