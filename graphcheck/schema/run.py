"""Owns the records of a run folder: what ran, how each attempt went, and what was concluded."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from graphcheck.schema.ablation import Ablation
from graphcheck.schema.attempt import Attempt
from graphcheck.schema.base import AxisValue, Record
from graphcheck.schema.events import ErrorEvent, ExitEvent
from graphcheck.schema.evidence import Backend, Evidence
from graphcheck.schema.golden import Calibration
from graphcheck.schema.journal import Journal
from graphcheck.schema.matrix import Matrix
from graphcheck.schema.provenance import Provenance
from graphcheck.schema.suite import Workload
from graphcheck.schema.verdicts import Outcome, Verdict

RUN_FORMAT = 3


class RunInfo(Record):
    """`run.json`: written when the run starts, and again, with `ended` and `exit_code`, when it ends."""

    format: int = Field(default=RUN_FORMAT, description="that the folder is written in")
    graphcheck: str
    command: tuple[str, ...]
    started: str
    ended: str | None = None
    exit_code: int | None = None
    matrix_name: str
    matrix: Matrix
    overrides: dict[str, AxisValue | bool | None] = Field(default_factory=dict, description="options that changed it")
    fixes_off: tuple[str, ...] = ()
    goldens: dict[str, str] = Field(default_factory=dict, description="model/suite -> golden body sha256")
    environment: dict[str, str] = Field(default_factory=dict)
    provenance: Provenance
    planned: tuple[str, ...] = Field(default=(), description="attempt keys in order, of repeats the first")
    repeats: int = Field(default=1, ge=1, description="how often each cell ran; not of an ablation's trials")
    ablation: Ablation | None = Field(default=None, description="what an ablation was asked; None for a matrix run")


class Stall(Record):
    """What the supervisor saw when it gave up on an attempt.

    `limit_seconds` is the printed limit, `stalled_seconds` how long no unfinished rank had moved when the verdict
    fell, `stacks` (rank -> text) the main-thread stack of each rank, innermost frame first.
    """

    kind: Literal["hang", "timeout"]
    phase: str
    step: int
    limit_seconds: float
    stalled_seconds: float
    journals: tuple[Journal, ...]
    stacks: dict[int, str] = Field(default_factory=dict)
    reason: str = ""


class Disagreement(Record):
    """The first token that ranks picked differently: `index` counts the prompt's output, `tokens` is rank -> id."""

    run: int = 0
    step: int
    prompt: str
    index: int
    tokens: dict[int, int]


class Parting(Record):
    """The first engine step that ranks ran with different batches: rank -> batch, in words."""

    run: int = 0
    step: int
    batches: dict[int, str]


class LogitsSplit(Record):
    """The first logits that ranks computed differently, whatever they picked: `digests` is rank -> sha256."""

    run: int = 0
    step: int
    prompt: str
    index: int
    digests: dict[int, str]


class Story(Record):
    """How the ranks of an attempt came apart, and what its forced pass adds to that."""

    disagreement: Disagreement | None = None
    split: LogitsSplit | None = None
    parting: Parting | None = None
    cause: str = ""


class NearTie(Record):
    """A step at which the engine picked an id that the golden ranks close behind its own.

    `step` counts output tokens from 0; `margin_ulp` is how far the golden's choice stands above `got`, in units in the
    last place of the dtype at the magnitude of the best logit.
    """

    run: int = 0
    step: int
    expected: int
    got: int
    margin_ulp: float


class PromptResult(Record):
    """The outcome of one prompt. The first difference is evidence; what follows it is a consequence.

    `rank` is the first rank on which it was seen; `step` counts output tokens from 0. `margin` (logits) is the golden's
    over its second best id, `margin_ulp` its margin over `got`; None if that is not among its best. `position` is the
    KV position that the step wrote, `slot` of `page`. `loop` and `loop_tokens` tell of the loop that a wrong answer
    ends in: its period, and how many tokens it fills. `near_ties` are set if they explain all.
    """

    prompt: str
    outcome: Outcome
    rank: int | None = None
    step: int | None = None
    expected: int | None = None
    got: int | None = None
    expected_text: str | None = None
    got_text: str | None = None
    margin: float | None = None
    margin_ulp: float | None = None
    position: int | None = None
    page: int | None = None
    slot: int | None = None
    engine_step: int | None = None
    lane: int | None = None
    bucket: int | None = None
    live: int | None = None
    detail: str = ""
    loop: int | None = None
    loop_tokens: int | None = None
    near_ties: tuple[NearTie, ...] = ()


class Tally(Record):
    """How many of some tokens are wrong."""

    wrong: int
    total: int


class WrongTokens(Record):
    """Where decoded tokens are wrong, and where they are right: by lane, by padding, by length of the sequence.

    `shortest` is the length in tokens, prompt included, of the shortest sequence with a wrong last token; `shorter`
    and `longer` count those below it, and those of that length or more.
    """

    lanes: dict[int, Tally]
    padded: Tally
    full: Tally
    shortest: int
    shorter: Tally
    longer: Tally


class AttemptFacts(Record):
    """What supervision recorded about an attempt, apart from its step events (steps/KEY.jsonl)."""

    num_ranks: int = Field(default=0, ge=0, description="ranks of the session; 0 if nothing started")
    exits: tuple[ExitEvent, ...] = ()
    errors: tuple[ErrorEvent, ...] = ()
    evidence: dict[int, Evidence] = Field(default_factory=dict)
    loaded: dict[int, str] = Field(default_factory=dict, description="rank -> what it had loaded: loaded/NAME.json")
    stall: Stall | None = None
    leaked: dict[int, int] | None = Field(
        default=None, description="GPU -> MiB still in use once all ranks were gone; None if nobody could tell"
    )
    seconds: dict[str, float] = Field(default_factory=dict)


class AttemptStarted(Record):
    """A line of cells.jsonl, written before the attempt starts."""

    record: Literal["started"] = "started"
    key: str
    attempt: Attempt
    model: str
    suite: str
    dtype: str
    settings: dict[str, AxisValue]
    workload: Workload | None = None
    calibration: Calibration | None = Field(default=None, description="what its near ties are judged by")
    at: str


class AttemptFinished(Record):
    """A line of cells.jsonl, written once there is a verdict; again after a forced pass: the last one counts."""

    record: Literal["finished"] = "finished"
    key: str
    verdict: Verdict
    reason: str = ""
    declared_eager: bool = Field(default=False, description="PASS (eager by declaration): not counted as graph-on")
    eligible_lane_tokens: int | None = None
    prompts: tuple[PromptResult, ...] = ()
    wrong: WrongTokens | None = Field(default=None, description="of an attempt whose tokens are wrong")
    answers_sha: str = Field(default="", description="sha256 of every rank's tokens: tells repeats apart")
    facts: AttemptFacts = AttemptFacts()
    backend: Backend | None = None
    story: Story | None = None
    at: str


@dataclass(frozen=True)
class RecordedAttempt:
    """One attempt as recorded; `finished` is None if the run ended first."""

    started: AttemptStarted
    finished: AttemptFinished | None
