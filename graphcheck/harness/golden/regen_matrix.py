"""Owns making the goldens that a matrix needs: its plan, handed to the reference."""

from graphcheck.harness.files.golden_store import DEFAULT_GOLDEN_DIR, golden_folders
from graphcheck.harness.golden.pending import Filed, GoldenPlace
from graphcheck.harness.golden.regen import OnPoll, regen
from graphcheck.harness.planning.golden_commands import regen_command, without_places
from graphcheck.harness.planning.request import RunRequest, make_plan
from graphcheck.targets.registry import load_target


def regen_matrix(request: RunRequest, *, writes: bool = True, on_poll: OnPoll = lambda making: None) -> list[Filed]:
    """Makes the golden of every model, suite and dtype that a matrix uses; what differs from the old one is pending.

    Without a golden folder in the request, a golden that lies beside the matrix file gets its pending file there.

    Raises:
        UsageError: an option or a file that cannot be used.
        TargetError: the reference failed.
        GoldenDisputed: another computation does not agree with it.
    """
    plan = make_plan(request, load_target)
    plan.target.close()
    golden_dir = request.golden_dir or DEFAULT_GOLDEN_DIR
    place = GoldenPlace(
        golden_dir=golden_dir,
        folders=golden_folders(golden_dir, plan.loaded.path),
        beside=() if request.golden_dir else (plan.loaded.path.parent / "golden",),
        writes=writes,
    )
    return regen(plan.attempts, place, regen_command(without_places(request, plan.loaded.name)), on_poll)
