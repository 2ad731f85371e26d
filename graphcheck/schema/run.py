"""Owns the records of a run folder: what ran, how each attempt went, and what was concluded."""

from typing import Literal

from pydantic import Field

from graphcheck.schema.ablation import Ablation
from graphcheck.schema.attempt import Attempt
from graphcheck.schema.base import AxisValue, Record
from graphcheck.schema.events import ErrorEvent, ExitEvent
from graphcheck.schema.evidence import Backend, Evidence
from graphcheck.schema.journal import Journal
from graphcheck.schema.matrix import Matrix
from graphcheck.schema.suite import Workload
from graphcheck.schema.verdicts import Outcome, Verdict

RUN_FORMAT = 1


class RunInfo(Record):
    """`run.json`: written when the run starts, and again, with `ended` and `exit_code`, when it ends."""

    format: int = RUN_FORMAT
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
    planned: tuple[str, ...] = Field(default=(), description="attempt keys in order")
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


class Story(Record):
    """How the ranks of an attempt came apart, and what its forced pass adds to that."""

    disagreement: Disagreement | None = None
    parting: Parting | None = None
    cause: str = ""


class PromptResult(Record):
    """The outcome of one prompt. The first difference is evidence; what follows it is a consequence.

    `rank` is the first rank on which it was seen; `step` counts output tokens from 0.
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
    engine_step: int | None = None
    lane: int | None = None
    bucket: int | None = None
    live: int | None = None
    detail: str = ""
    loop: int | None = Field(default=None, description="period of the loop that a wrong answer ends in, in tokens")


class AttemptFacts(Record):
    """What supervision recorded about an attempt, apart from its step events (steps/KEY.jsonl)."""

    num_ranks: int = Field(default=0, ge=0, description="ranks of the session; 0 if nothing started")
    exits: tuple[ExitEvent, ...] = ()
    errors: tuple[ErrorEvent, ...] = ()
    evidence: dict[int, Evidence] = Field(default_factory=dict)
    stall: Stall | None = None
    skipped: str | None = None
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
    at: str


class AttemptFinished(Record):
    """A line of cells.jsonl, written when the attempt has a verdict."""

    record: Literal["finished"] = "finished"
    key: str
    verdict: Verdict
    reason: str = ""
    declared_eager: bool = Field(default=False, description="PASS (eager by declaration): not counted as graph-on")
    eligible_lane_tokens: int | None = None
    prompts: tuple[PromptResult, ...] = ()
    facts: AttemptFacts = AttemptFacts()
    backend: Backend | None = None
    story: Story | None = None
    at: str
