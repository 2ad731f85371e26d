"""Owns the verdict of one attempt: a pure function of what was recorded, so that it can be drawn again offline."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from graphcheck.harness.compare import compare
from graphcheck.harness.death import EARLY_EXIT, describe_exit, first_bad_exit, first_cause, first_line
from graphcheck.harness.story import tell
from graphcheck.harness.transcript import Transcript, transcripts
from graphcheck.harness.witness import RankWitness, contradicted, declared_eager, unwitnessed, vacuous, witnesses
from graphcheck.schema.events import StepEvent
from graphcheck.schema.golden import Golden
from graphcheck.schema.matrix import Policy
from graphcheck.schema.run import AttemptFacts, AttemptFinished, AttemptStarted, PromptResult
from graphcheck.schema.suite import Workload
from graphcheck.schema.verdicts import Outcome, Verdict

UNJUDGED = (Verdict.SKIPPED, Verdict.MISSING, Verdict.STALE)
"""Verdicts that fall before an attempt starts: nothing is recorded that they could be drawn from again."""


@dataclass(frozen=True)
class Forced:
    """What a forced pass of the same attempt gave: its steps, and its own verdict."""

    steps: tuple[StepEvent, ...]
    finished: AttemptFinished


class Case:
    """Everything a verdict is drawn from, and what follows from it."""

    def __init__(
        self,
        started: AttemptStarted,
        golden: Golden,
        policy: Policy,
        steps: Sequence[StepEvent],
        facts: AttemptFacts,
        forced: Forced | None = None,
    ) -> None:
        if started.workload is None:
            raise ValueError(f"{started.key}: an attempt without a workload cannot be judged")
        self.workload: Workload = started.workload
        self.graph = started.settings.get("graph")
        self.started, self.golden, self.policy, self.steps, self.facts = started, golden, policy, steps, facts
        self.forced = transcripts(forced.steps, "forced") if forced is not None else {}

    @cached_property
    def answers(self) -> dict[tuple[str, int, int], Transcript]:
        """Prompt, pass, rank -> transcript; an empty one where no token came, more where none was due."""
        due = [
            (request.id, run, rank)
            for request in self.workload.requests
            for run in range(self.workload.passes)
            for rank in range(self.facts.num_ranks)
        ]
        return {key: Transcript(*key) for key in due} | transcripts(self.steps, self.started.attempt.feed)

    @cached_property
    def prompts(self) -> tuple[PromptResult, ...]:
        return tuple(
            compare(
                self.golden.prompt(request.id),
                [answer for answer in self.answers.values() if answer.prompt == request.id],
                self.facts.errors,
                self.forced,
            )
            for request in self.workload.requests
        )

    @cached_property
    def ranks(self) -> tuple[RankWitness, ...]:
        facts = self.facts
        return witnesses(self.started.settings, self.workload, self.golden, self.steps, facts.evidence, facts.num_ranks)

    def outcomes(self, *outcomes: Outcome) -> list[PromptResult]:
        return [prompt for prompt in self.prompts if prompt.outcome in outcomes]


def judge(
    started: AttemptStarted,
    golden: Golden,
    policy: Policy,
    steps: Sequence[StepEvent],
    facts: AttemptFacts,
    at: str,
    forced: Forced | None = None,
) -> AttemptFinished:
    """The verdict of an attempt that ran: the first rule that gives a reason, else PASS.

    `steps` are all ranks' step events in order of arrival; `at` is the time to record. A forced pass refines outcomes
    and adds the cause; it never changes a HANG.
    """
    case = Case(started, golden, policy, steps, facts, forced)
    verdict, reason = Verdict.PASS, ""
    for candidate, rule in _RULES:
        found = rule(case)
        if found is not None:
            verdict, reason = candidate, found
            break
    return AttemptFinished(
        key=started.key,
        verdict=verdict,
        reason=reason,
        declared_eager=verdict is Verdict.PASS and declared_eager(case.graph, case.ranks),
        eligible_lane_tokens=max((rank.eligible for rank in case.ranks), default=None) if case.graph == "on" else None,
        prompts=case.prompts,
        facts=facts,
        backend=next((facts.evidence[rank].backend for rank in sorted(facts.evidence)), None),
        story=tell(steps, facts.stall, verdict, forced.finished if forced is not None else None),
        at=at,
    )


def _hang(case: Case) -> str | None:
    stall = case.facts.stall
    return stall.reason if stall is not None and stall.kind == "hang" else None


def _timeout(case: Case) -> str | None:
    stall = case.facts.stall
    return stall.reason if stall is not None and stall.kind == "timeout" else None


def _crash(case: Case) -> str | None:
    error = first_cause("crash", case.facts.errors)
    if error is not None and error.error == EARLY_EXIT:
        return f"rank {error.rank} {error.message}, in {error.phase}"
    if error is not None:
        return f"rank {error.rank} raised {error.error} in {error.phase}: {first_line(error.message)}"
    bad = first_bad_exit(case.facts.exits, case.facts.errors)
    if bad is None or first_cause("oom", case.facts.errors) is not None:
        return None
    last = max((step.step for step in case.steps if step.rank == bad.rank), default=None)
    return f"{describe_exit(bad)} " + ("before its first step" if last is None else f"after step {last}")


def _oom(case: Case) -> str | None:
    error = first_cause("oom", case.facts.errors)
    return (
        None if error is None else f"rank {error.rank} ran out of memory in {error.phase}: {first_line(error.message)}"
    )


def _error(case: Case) -> str | None:
    known = {request.id for request in case.workload.requests}
    for answer in case.answers.values():
        if answer.prompt not in known or answer.run >= case.workload.passes or answer.rank >= case.facts.num_ranks:
            where = f"rank {answer.rank}, pass {answer.run + 1}"
            return f"tokens came for prompt {answer.prompt!r} on {where}, for which none were due"
    failed = case.outcomes(Outcome.ERROR)
    if failed:
        why = first_line(failed[0].detail)
        return f"{len(failed)} of {len(case.prompts)} prompts failed; first {failed[0].prompt!r}: {why}"
    silent = case.outcomes(Outcome.MISSING)
    if silent:
        return f"{len(silent)} of {len(case.prompts)} prompts gave no tokens; first {silent[0].prompt!r}"
    return None


def _tokens(case: Case) -> str | None:
    wrong = [prompt for prompt in case.prompts if prompt.outcome not in (Outcome.EXACT, Outcome.NEAR_TIE)]
    if not wrong:
        return None
    first = wrong[0]
    return f"{len(wrong)} of {len(case.prompts)} prompts differ; first {first.prompt!r} at token {first.step}"


def _breach(case: Case) -> str | None:
    """A breach of the replay contract that the audit found; nothing was found where no audit ran."""
    for rank, evidence in sorted(case.facts.evidence.items()):
        for finding in evidence.audit or ():
            what = f"{finding.clause} of {finding.buffer}: {finding.detail}"
            return f"tokens are right, but by the audit of rank {rank}, replay {finding.replay}, {what}"
    return None


_RULES: tuple[tuple[Verdict, Callable[[Case], str | None]], ...] = (
    (Verdict.HANG, _hang),
    (Verdict.TIMEOUT, _timeout),
    (Verdict.CRASH, _crash),
    (Verdict.OOM, _oom),
    (Verdict.ERROR, _error),
    (Verdict.TOKENS, _tokens),
    # Wrong tokens are the fault itself; a breach of the contract alone is an error that has not shown in tokens yet.
    (Verdict.ERROR, _breach),
    (Verdict.VACUOUS, lambda case: contradicted(case.started.settings, case.ranks)),
    (Verdict.VACUOUS, lambda case: vacuous(case.graph, case.ranks, case.policy.expect_fallback)),
    (Verdict.UNWITNESSED, lambda case: unwitnessed(case.graph, case.ranks)),
)
"""In order of precedence."""
