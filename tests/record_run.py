"""Owns recording the run folders in tests/run_folders, which later versions must still read.

    python -m tests.record_run

records those of today's format, once, before the format changes: what is there already stays as it is.
"""

import json
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from graphcheck.harness.planning.request import RunRequest
from graphcheck.harness.running.run_matrix import run_matrix
from graphcheck.schema.run import RUN_FORMAT
from tests.fake_ablation import ablate_in
from tests.fake_loading import LoadingTarget
from tests.fake_world import make_world

FOLDERS = Path(__file__).parent / "run_folders"
FAULTS = ("none", "drift", "hang", "signal", "request_error", "no_replay", "unwitnessed")


def main() -> None:
    """A matrix run with cells of every colour, and an ablation, both on the fake target."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        world = make_world(Path(folder))
        target = LoadingTarget(world)
        matrix = world.matrix(tp=[2], graph=["on"], fault=FAULTS)
        surroundings = replace(world.surroundings(), load_target=lambda name: target)
        run_matrix(RunRequest(matrix=str(matrix), run_dir=Path("matrix")), surroundings=surroundings)
        ablate_in(world, world.matrix(tp=[2], graph=["on"]), target=target, run_dir=Path("ablation"))
        for kind in ("matrix", "ablation"):
            _keep(Path(kind), FOLDERS / f"format{RUN_FORMAT}" / kind)


def _keep(run: Path, target: Path) -> None:
    """Logs and stacks, which only people read, are left out, and which machine it was is nobody's business."""
    shutil.copytree(run, target, ignore=shutil.ignore_patterns("attempts"))
    info = json.loads((target / "run.json").read_text(encoding="utf-8"))
    info["environment"]["platform"] = "Linux"
    info["provenance"]["source"] = {"folder": "", "note": "recorded for the tests"}
    (target / "run.json").write_text(json.dumps(info, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
