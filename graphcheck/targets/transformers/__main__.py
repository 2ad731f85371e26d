"""Owns the start of the reference's process: tied to its parent before the imports, which take seconds."""

import sys
from pathlib import Path

from graphcheck.targets.own_process import die_with


def main() -> None:
    """Arguments: the process id of the parent, the job file, the file descriptor for events."""
    parent, job_file, events = sys.argv[1:]
    die_with(int(parent))

    from graphcheck.targets.transformers.worker import work

    work(Path(job_file), int(events))


if __name__ == "__main__":
    main()
