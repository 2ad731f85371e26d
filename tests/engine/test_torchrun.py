"""The same ranks under torchrun: same tokens as under the supervisor, no shared memory left."""

import subprocess
import sys
from pathlib import Path

from graphcheck.schema.events import EVENT, StepEvent
from graphcheck.targets.bundled.target import BundledTarget
from tests.engine.outputs import random_requests, run_attempt


def test_torchrun_gives_the_tokens_of_the_supervised_run(target: BundledTarget, tiny: Path, tmp_path: Path) -> None:
    _, steps = run_attempt(target, tiny, random_requests(4, vocab=211), tmp_path / "run", tp=2, graph="on")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "graphcheck.targets.bundled.torchrun", str(tmp_path / "run" / "job.json"), str(tmp_path / "out")]
    subprocess.run(command, check=True, capture_output=True, timeout=120, cwd=Path(__file__).parents[2])
    for rank in range(2):
        lines = (tmp_path / "out" / f"rank{rank}.jsonl").read_bytes().splitlines()
        events = [EVENT.validate_json(line) for line in lines]
        again = [event.ids for event in events if isinstance(event, StepEvent)]
        assert again == [step.ids for step in steps if step.rank == rank]
    assert not list(Path("/dev/shm").glob("graphcheck-*"))
