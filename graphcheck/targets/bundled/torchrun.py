"""Owns running one attempt's job under torchrun: the same ranks, without a supervisor.

    torchrun --nproc-per-node 2 -m graphcheck.targets.bundled.torchrun RUN/attempts/KEY/job.json OUT_DIR

Events go to OUT_DIR/rankN.jsonl. Nobody watches: a job that hangs, hangs.
"""

import argparse
import os
import sys
import time
from pathlib import Path

from torch._C._distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

from graphcheck.engine.journal import JournalMemory
from graphcheck.targets.bundled.job import Job
from graphcheck.targets.bundled.mapping import EventWriter
from graphcheck.targets.bundled.rank import NEVER, work

_POLL_SECONDS = 0.01


def main() -> int:
    """Runs this process's rank; returns its exit status."""
    parser = argparse.ArgumentParser(description="Run one attempt's job under torchrun.")
    parser.add_argument("job", type=Path)
    parser.add_argument("out_dir", type=Path)
    arguments = parser.parse_args()
    job = Job.model_validate_json(arguments.job.read_bytes())
    arguments.out_dir.mkdir(parents=True, exist_ok=True)
    store, rank, world_size = next(rendezvous("env://", timeout=NEVER))
    if world_size != job.num_ranks:
        print(f"WORLD_SIZE = {world_size}: the job has tp = {job.num_ranks}; pass --nproc-per-node {job.num_ranks}")
        return 2
    journal = _map_journal(store, rank, world_size).writer(rank)

    with open(arguments.out_dir / f"rank{rank}.jsonl", "w", encoding="utf-8") as events:
        return work(
            job, rank, journal, EventWriter(rank, events), lambda: store, lambda: _meet(store, "done", world_size)
        )


def _map_journal(store: Store, rank: int, world_size: int) -> JournalMemory:
    """The journal in a file that loses its name as soon as every rank has it open, so that nothing stays behind."""
    if rank == 0:
        path = Path(f"/dev/shm/graphcheck-{os.getpid()}")
        path.touch(0o600, exist_ok=False)
        os.truncate(path, JournalMemory.num_bytes(world_size))
        store.set("journal", str(path))
    path = Path(store.get("journal").decode())
    with open(path, "r+b") as file:
        memory = JournalMemory(file.fileno(), world_size)
    _meet(store, "mapped", world_size)
    if rank == 0:
        path.unlink()
    return memory


def _meet(store: Store, key: str, world_size: int) -> None:
    """Returns when every rank has come here. A store key and not a collective: ranks may have parted."""
    store.add(key, 1)
    while store.add(key, 0) < world_size:
        time.sleep(_POLL_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
