"""Owns making the goldens that a matrix needs: its plan, handed to the reference."""

from graphcheck.harness.golden_regen import RegenResult, regen
from graphcheck.harness.golden_store import DEFAULT_GOLDEN_DIR
from graphcheck.harness.request import RunRequest, make_plan
from graphcheck.targets.registry import load_target


def regen_matrix(request: RunRequest) -> list[RegenResult]:
    """Makes the golden of every model, suite and dtype that a matrix uses, in the request's golden folder.

    Raises:
        UsageError: an option or a file that cannot be used.
        TargetError: the reference failed.
    """
    plan = make_plan(request, load_target)
    plan.target.close()
    command = f"graphcheck golden regen {plan.loaded.name}"
    return regen(plan.attempts, request.golden_dir or DEFAULT_GOLDEN_DIR, command)
