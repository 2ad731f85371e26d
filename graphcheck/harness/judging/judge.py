"""Owns the verdict of one attempt: a pure function of what was recorded, so that it can be drawn again offline."""

import hashlib
import json
from collections.abc import Callable, Sequence

from graphcheck.harness.judging.case import Case, Forced
from graphcheck.harness.judging.death import (
    EARLY_EXIT,
    SESSION_LOST,
    describe_exit,
    first_bad_exit,
    first_cause,
    first_line,
)
from graphcheck.harness.judging.eligible import is_oversize, largest_bucket
from graphcheck.harness.judging.near_tie import is_bit_exact
from graphcheck.harness.judging.near_tie_budget import over_budget
from graphcheck.harness.judging.story import first_disagreement, first_split, tell
from graphcheck.harness.judging.transcript import Transcript
from graphcheck.harness.judging.witness import contradicted, declared_eager, unwitnessed, vacuous
from graphcheck.harness.judging.wrong_tokens import wrong_tokens
from graphcheck.schema.events import FinishedEvent, StepEvent
from graphcheck.schema.golden import Golden
from graphcheck.schema.matrix import Policy
from graphcheck.schema.run import AttemptFacts, AttemptFinished, AttemptStarted
from graphcheck.schema.verdicts import Outcome, Verdict

UNCALIBRATED = "near ties are not looked for without a calibration (`graphcheck golden calibrate MATRIX`)"

UNJUDGED = (Verdict.SKIPPED, Verdict.MISSING, Verdict.STALE)
"""Verdicts that fall before an attempt starts: nothing is recorded that they could be drawn from again."""


def judge(
    started: AttemptStarted,
    golden: Golden,
    policy: Policy,
    events: Sequence[StepEvent | FinishedEvent],
    facts: AttemptFacts,
    at: str,
    forced: Forced | None = None,
) -> AttemptFinished:
    """The verdict of an attempt that ran: the first rule that gives a reason, else PASS.

    `events` are all ranks' in order of arrival; `at` is the time to record. A forced pass refines outcomes
    and adds the cause; it never changes a HANG.
    """
    case = Case(started, golden, policy, events, facts, forced)
    verdict, reason = Verdict.PASS, ""
    for candidate, rule in _RULES:
        found = rule(case)
        if found is not None:
            verdict, reason = candidate, found
            break
    else:
        reason = "; ".join(filter(None, (_near_tied(case), _oversize(case))))
    return AttemptFinished(
        key=started.key,
        verdict=verdict,
        reason=reason,
        declared_eager=verdict is Verdict.PASS and declared_eager(case.graph, case.ranks),
        eligible_lane_tokens=max((rank.eligible for rank in case.ranks), default=None) if case.graph == "on" else None,
        prompts=case.prompts,
        wrong=wrong_tokens(golden, case.answers, case.forced_answers) if verdict is Verdict.TOKENS else None,
        answers_sha=_answers_sha(case.answers),
        facts=facts,
        backend=next((facts.evidence[rank].backend for rank in sorted(facts.evidence)), None),
        story=tell(case.steps, facts.stall, verdict, forced.finished if forced is not None else None),
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
    if error is not None and error.error == SESSION_LOST:
        return f"the supervisor lost its ranks in {error.phase} {first_line(error.message)}"
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


def _leak(case: Case) -> str | None:
    if not case.facts.leaked:
        return None
    left = ", ".join(f"{mib} MiB on GPU {gpu}" for gpu, mib in case.facts.leaked.items())
    return f"{left} are still in use, although all ranks are gone; unless another program took them meanwhile"


def _tokens(case: Case) -> str | None:
    wrong = [prompt for prompt in case.prompts if prompt.outcome not in (Outcome.EXACT, Outcome.NEAR_TIE)]
    if not wrong:
        return None
    first, started = wrong[0], case.started
    reason = f"{len(wrong)} of {len(case.prompts)} prompts differ; first {first.prompt!r} at token {first.step}"
    if started.calibration or is_bit_exact(started.dtype, started.settings):
        return reason
    return f"{reason}; {UNCALIBRATED}"


def _unexplained(case: Case) -> str | None:
    """Near ties in a free pass are as good as the forced pass that explains them."""
    forced = case.forced.finished if case.forced is not None else None
    if forced is None or forced.verdict.is_green or not case.outcomes(Outcome.NEAR_TIE):
        return None
    return f"near ties are not explained, since the forced pass ended in {forced.verdict}: {forced.reason}"


def _over_budget(case: Case) -> str | None:
    """More near ties than the calibration makes likely: what drifts slowly would hide among them."""
    ties = sum(len(prompt.near_ties) for prompt in case.outcomes(Outcome.NEAR_TIE))
    steps = sum(len(prompt.ids) for prompt in case.golden.prompts) * case.workload.passes
    return over_budget(ties, steps, case.started.calibration) if case.started.calibration is not None else None


def _near_tied(case: Case) -> str:
    """What a PASS rests on where not every token is the golden's."""
    ties = [tie.margin_ulp for prompt in case.outcomes(Outcome.NEAR_TIE) for tie in prompt.near_ties]
    if not ties or case.started.calibration is None:
        return ""
    bound = case.started.calibration.bound
    return f"{len(ties)} near tie{'s' * (len(ties) > 1)}, {max(ties):.3g} ULP at most where the bound is {bound:.3g}"


def _oversize(case: Case) -> str:
    """What of a graph-on cell no graph could serve: right by the rules of the engine, but no evidence about graphs."""
    decode = [step for step in case.steps if step.rank == 0 and step.phase == "decode"]
    eager = sum(is_oversize(step, largest_bucket(case.started.settings)) for step in decode)
    if case.graph != "on" or not eager:
        return ""
    return f"{eager} of {len(decode)} decode steps ran eager: their batches are larger than the largest bucket"


def _parted(case: Case) -> str | None:
    """Ranks that disagree although each one's tokens are right, or excused."""
    if (split := first_disagreement(case.steps)) is not None:
        where = f"engine step {split.step}, prompt {split.prompt!r}, token {split.index}"
        return f"ranks picked different tokens at {where}, each of them within a near tie"
    if (parted := first_split(case.steps)) is not None:
        where = f"engine step {parted.step}, prompt {parted.prompt!r}, token {parted.index}"
        return f"tokens are right, but the ranks' logits differ from {where} on"
    return None


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
    (Verdict.LEAK, _leak),
    (Verdict.TOKENS, _tokens),
    (Verdict.TOKENS, _over_budget),
    (Verdict.TOKENS, _unexplained),
    # Ranks compute the same step from the same reduced values: their logits may differ in nothing.
    (Verdict.ERROR, _parted),
    # Wrong tokens are the fault itself; a breach of the contract alone is an error that has not shown in tokens yet.
    (Verdict.ERROR, _breach),
    (Verdict.VACUOUS, lambda case: contradicted(case.started.settings, case.ranks)),
    (Verdict.VACUOUS, lambda case: vacuous(case.graph, case.ranks, case.policy.expect_fallback)),
    (Verdict.UNWITNESSED, lambda case: unwitnessed(case.graph, case.ranks)),
)
"""In order of precedence."""


def _answers_sha(answers: dict[tuple[str, int, int], Transcript]) -> str:
    tokens = [[*key, *answers[key].ids] for key in sorted(answers)]
    return hashlib.sha256(json.dumps(tokens).encode()).hexdigest()
