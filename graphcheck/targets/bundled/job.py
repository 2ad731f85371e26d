"""Owns the job file: what every rank of an attempt is told to do."""

from pathlib import Path

from graphcheck.schema.base import AxisValue, Record
from graphcheck.schema.suite import Workload


class Job(Record):
    """Written once an attempt (`job.json`), read by each of its ranks."""

    model_dir: Path
    settings: dict[str, AxisValue]
    fixes_off: tuple[str, ...] = ()
    workload: Workload

    @property
    def num_ranks(self) -> int:
        return int(self.settings["tp"])
