"""Owns the records of a golden file (a header line, then one line a prompt) and of the calibration beside it."""

from pydantic import Field

from graphcheck.schema.base import AxisValue, Record

GOLDEN_FORMAT = 2
READABLE_FORMATS = (1, 2)
"""Format 1 had neither `quorum` nor `hard`, and no step of it was soft."""

NUM_TOP = 4
"""How many (id, logit) pairs each step of a golden keeps."""

CALIBRATION_FORMAT = 1


class Quorum(Record):
    """Who agreed on a golden's tokens, and how much a margin may mean.

    `noise` (logits) is how far a margin moved, at most, from one computation to another where they gave the same
    token; one of them is in the dtype's own arithmetic. `num_soft` counts the steps that must not be judged hard.
    """

    agreed: tuple[str, ...]
    noise: float = Field(ge=0.0)
    num_soft: int = Field(ge=0)


class HardAcceptance(Record):
    """Why a change of tokens was accepted although the golden before had them with margins above the noise."""

    reason: str = Field(min_length=1)
    prompts: tuple[str, ...]
    replaced_body_sha: str = ""
    on: str


class GoldenHeader(Record):
    """Line 1 of a golden.

    `model` maps each part of the model folder (config, weights, tokenizer) to its sha256; `suite_sha` is the hash
    of the suite's canonical content; `body_sha` covers every byte after line 1. `made_on`, `command` and `hard`
    change only when the body does.
    """

    format: int = GOLDEN_FORMAT
    model_name: str
    model: dict[str, str]
    suite: str
    suite_sha: str
    dtype: str
    num_prompts: int
    reference: str = Field(description="the implementation that computed it, with its settings")
    versions: dict[str, str]
    quorum: Quorum | None = None
    hard: HardAcceptance | None = None
    body_sha: str
    made_on: str
    command: str


class GoldenStep(Record):
    """One step's best ids with their logits, best first; `soft` marks a step that must not be judged hard."""

    top: tuple[tuple[int, float], ...] = Field(min_length=1)
    soft: bool = False

    @property
    def margin(self) -> float:
        """Logit distance between the best and the second best id."""
        return self.top[0][1] - self.top[1][1] if len(self.top) > 1 else float("inf")


class GoldenPrompt(Record):
    """The right answer to one prompt: output ids (a final stop id included), their text, and every step's top ids."""

    id: str
    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...] = Field(min_length=1)
    text: str
    finish: str = Field(pattern="^(stop|length)$")
    steps: tuple[GoldenStep, ...]


class Golden(Record):
    """A whole golden, its header checked against its body."""

    header: GoldenHeader
    prompts: tuple[GoldenPrompt, ...]

    def prompt(self, prompt_id: str) -> GoldenPrompt:
        """The answer to that prompt. Raises KeyError if there is none."""
        for prompt in self.prompts:
            if prompt.id == prompt_id:
                return prompt
        raise KeyError(f"no prompt {prompt_id!r} in the golden of {self.header.model_name}/{self.header.suite}")


class Calibration(Record):
    """How far an engine that is known to be good strays from a golden: what may be a near tie, and how often.

    `made_for` holds the target and those of its settings on which rounding depends. `bound` is in units in the last
    place (ULP) of the golden's dtype at the magnitude of each step's best logit: the farthest that a gap between two
    of a golden's best logits moved in `num_steps` steps, over all cells and repeats; `num_near_ties` of these steps
    had another token.
    """

    made_for: dict[str, AxisValue]
    bound: float = Field(ge=0.0)
    num_near_ties: int = Field(ge=0)
    num_steps: int = Field(gt=0)
    cells: tuple[str, ...]
    repeats: int = Field(ge=1)
    environment: dict[str, str]
    made_on: str
    command: str


class CalibrationHeader(Record):
    """Line 1 of a calibration file: which golden it was measured against; `body_sha` covers what follows."""

    format: int = CALIBRATION_FORMAT
    model_name: str
    suite: str
    dtype: str
    golden_sha: str
    num_calibrations: int
    body_sha: str


class Calibrations(Record):
    """A whole calibration file: one calibration for each `made_for`."""

    header: CalibrationHeader
    calibrations: tuple[Calibration, ...]

    def find(self, made_for: dict[str, AxisValue]) -> Calibration | None:
        return next((one for one in self.calibrations if one.made_for == made_for), None)
