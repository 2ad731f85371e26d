"""Owns worlds of the fake target in which the golden is unsure of one token, and their calibration."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphcheck.harness.files.golden_store import read_golden, write_golden
from graphcheck.harness.golden.calibrate import Calibrated, calibrate
from graphcheck.harness.planning.request import RunRequest
from graphcheck.schema.golden import GoldenStep
from tests.fake_world import FakeWorld

PROMPT, STEP = "one", 1
"""Where the fault `drift` picks the second best id of the golden."""

MARGIN = 0.25
MARGIN_ULP = MARGIN * 2**21
"""The margin in ULP of float32 at the golden's best logit, 4.0."""


def make_unsure(
    world: FakeWorld, margin: float = MARGIN, *, soft: bool = True, where: Callable[[str, int], bool] | None = None
) -> None:
    """The golden's margin becomes `margin` logits `where` (prompt, step) says so; by default at STEP of PROMPT."""
    here = where or (lambda prompt, step: (prompt, step) == (PROMPT, STEP))
    old = read_golden(world.golden_file)

    def unsure(step: GoldenStep) -> GoldenStep:
        (best, logit), (second, _) = step.top
        return GoldenStep(top=((best, logit), (second, logit - margin)), soft=soft)

    prompts = [
        prompt.model_copy(
            update={"steps": tuple(unsure(s) if here(prompt.id, n) else s for n, s in enumerate(prompt.steps))}
        )
        for prompt in old.prompts
    ]
    write_golden(world.golden_file, old.header.model_dump(exclude={"format", "num_prompts", "body_sha"}), prompts)


def calibrated(world: FakeWorld, matrix: Path, repeats: int = 1, **request: Any) -> list[Calibrated]:
    """`golden calibrate` in virtual time."""
    asked = RunRequest(matrix=str(matrix), **request)
    return calibrate(asked, repeats, surroundings=world.surroundings(gives_forced=True))
