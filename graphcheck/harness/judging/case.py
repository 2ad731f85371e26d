"""Owns everything that one attempt's verdict is drawn from, and what follows from it. Draws no verdict."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from graphcheck.harness.judging.compare import Terms, compare
from graphcheck.harness.judging.near_tie import TieRule
from graphcheck.harness.judging.transcript import Transcript, transcripts
from graphcheck.harness.judging.witness import RankWitness, witnesses
from graphcheck.schema.events import FinishedEvent, StepEvent
from graphcheck.schema.golden import Golden
from graphcheck.schema.matrix import Policy
from graphcheck.schema.run import AttemptFacts, AttemptFinished, AttemptStarted, PromptResult
from graphcheck.schema.suite import Workload
from graphcheck.schema.verdicts import Outcome


@dataclass(frozen=True)
class Forced:
    """What a forced pass of the same attempt gave: its steps, and its own verdict."""

    events: tuple[StepEvent | FinishedEvent, ...]
    finished: AttemptFinished


class Case:
    """Everything a verdict is drawn from, and what follows from it."""

    def __init__(
        self,
        started: AttemptStarted,
        golden: Golden,
        policy: Policy,
        events: Sequence[StepEvent | FinishedEvent],
        facts: AttemptFacts,
        forced: Forced | None = None,
    ) -> None:
        if started.workload is None:
            raise ValueError(f"{started.key}: an attempt without a workload cannot be judged")
        self.workload: Workload = started.workload
        self.graph = started.settings.get("graph")
        self.started, self.golden, self.policy, self.events, self.facts = started, golden, policy, events, facts
        self.steps = [event for event in events if isinstance(event, StepEvent)]
        self.forced = forced

    @cached_property
    def answers(self) -> dict[tuple[str, int, int], Transcript]:
        """Prompt, pass, rank -> transcript; an empty one where no token came, more where none was due."""
        due = [
            (request.id, run, rank)
            for request in self.workload.requests
            for run in range(self.workload.passes)
            for rank in range(self.facts.num_ranks)
        ]
        return {key: Transcript(*key) for key in due} | transcripts(self.events, self.started.attempt.feed)

    @cached_property
    def forced_answers(self) -> dict[tuple[str, int, int], Transcript]:
        """Those of the forced pass; empty if there was none. A forced pass is its own."""
        if self.started.attempt.feed == "forced":
            return self.answers
        return transcripts(self.forced.events, "forced") if self.forced is not None else {}

    @cached_property
    def prompts(self) -> tuple[PromptResult, ...]:
        calibration = self.started.calibration
        ties = TieRule(self.started.dtype, calibration.bound if calibration is not None else None)
        return tuple(
            compare(
                self.golden.prompt(request.id),
                [answer for answer in self.answers.values() if answer.prompt == request.id],
                self.facts.errors,
                self.forced_answers,
                Terms(ties, request.stop_ids, self._page_size),
            )
            for request in self.workload.requests
        )

    @cached_property
    def surplus(self) -> dict[int, int]:
        """Rank -> tokens by which its answers that went on from a near tie are longer than the golden's, or shorter."""
        explained = {prompt.prompt for prompt in self.outcomes(Outcome.NEAR_TIE)}
        longer: dict[int, int] = dict.fromkeys(range(self.facts.num_ranks), 0)
        for (prompt, _, rank), answer in self.answers.items():
            if prompt in explained and rank in longer:
                longer[rank] += len(answer.ids) - len(self.golden.prompt(prompt).ids)
        return longer

    @cached_property
    def ranks(self) -> tuple[RankWitness, ...]:
        given = self.started.settings, self.workload, self.golden, self.steps
        return witnesses(*given, self.facts.evidence, self.surplus)

    def outcomes(self, *outcomes: Outcome) -> list[PromptResult]:
        return [prompt for prompt in self.prompts if prompt.outcome in outcomes]

    @property
    def _page_size(self) -> int | None:
        """In tokens; None where the KV cache has no pages, or nobody says."""
        page_size = self.started.settings.get("page_size")
        return page_size if isinstance(page_size, int) and self.started.settings.get("kv", "paged") == "paged" else None
