"""Owns what may be calibrated: which targets and cells, and whether a cell that was measured is known to be good."""

from graphcheck.harness.judging.near_tie import is_bit_exact
from graphcheck.harness.planning.plan import PlannedAttempt
from graphcheck.harness.planning.prepare import Ready
from graphcheck.harness.planning.request import Plan
from graphcheck.schema.capabilities import Capabilities
from graphcheck.schema.errors import GoldenDisputed, UsageError
from graphcheck.schema.run import AttemptFinished
from graphcheck.schema.verdicts import Outcome


def check_target(capabilities: Capabilities) -> None:
    """Whether its cells can be fed with a golden's tokens, and tell by how much they differ.

    Raises:
        UsageError: they cannot.
    """
    needs = {
        "be fed the golden's tokens": capabilities.gives_forced,
        "report its best logits when asked": capabilities.gives_top_logits and capabilities.axis("logits") is not None,
    }
    for what, can in needs.items():
        if not can:
            raise UsageError(f"target {capabilities.target}", f"it cannot {what}", "calibrate a target that can")


def cells_that_round(plan: Plan) -> list[PlannedAttempt]:
    """The cells in which rounding may decide; a target that does not tell its numerics may round anywhere.

    Raises:
        UsageError: there is none, and a bound would excuse bugs.
    """
    cells = [
        planned
        for planned in plan.attempts
        if "numerics" not in planned.settings or not is_bit_exact(planned.dtype, planned.settings)
    ]
    if not cells:
        raise UsageError(
            f"matrix {plan.loaded.name}: dtype = float32, numerics = invariant",
            "this arithmetic is bit-exact: any difference is a bug, and a bound would excuse it",
            "calibrate cells of another dtype, or with numerics = fast",
        )
    return cells


def check_is_good(cell: Ready, finished: AttemptFinished) -> None:
    """Whether a cell was green but for tokens at steps of which the golden itself is not sure.

    Raises:
        GoldenDisputed: it was not, so that nobody knows whether the engine is good.
    """
    name, todo = cell.planned.attempt.cell.name, "find out what is wrong: only a good engine's noise is noise"
    if not finished.verdict.is_green:
        raise GoldenDisputed(f"cell {name}: {finished.verdict}", finished.reason, todo)
    for prompt in finished.prompts:
        for tie in prompt.near_ties if prompt.outcome is Outcome.NEAR_TIE else ():
            step = cell.golden.prompt(prompt.prompt).steps[tie.step]
            if not step.soft:
                raise GoldenDisputed(
                    f"cell {name}, prompt {prompt.prompt!r}, token {tie.step}: {tie.got} instead of {tie.expected}",
                    f"the golden is sure of it, with a margin of {tie.margin_ulp:.3g} ULP",
                    todo,
                )
