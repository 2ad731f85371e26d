"""Owns what the trials of one fix showed in one cell, each against the fix's signature. Draws no finding."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from graphcheck.schema.ablation import CellEffect
from graphcheck.schema.capabilities import FixInfo
from graphcheck.schema.events import Phase
from graphcheck.schema.run import AttemptFinished, PromptResult, RecordedAttempt
from graphcheck.schema.verdicts import Outcome, Verdict


@dataclass(frozen=True)
class Rate:
    """How many of some trials showed the declared signature."""

    hits: int
    trials: int


@dataclass(frozen=True)
class Shown:
    """One fix in one cell: the effect as reports show it, and how it compares with the signature.

    A trial counts as delayed only if a rank was there to be delayed. `red` tells of every trial that was not green,
    as `VERDICT in PHASE`; `misses` of those among them that are not the declared signature. `can_reach` holds the
    visits in those phases alone in which the fix can act; None if no rank gave evidence.
    """

    effect: CellEffect
    bare: Rate
    delayed: Rate
    red: Counter[str]
    misses: Counter[str]
    can_reach: int | None

    @property
    def ran(self) -> bool:
        return self.bare.trials + self.delayed.trials > 0

    def shows(self, *, is_race: bool) -> bool:
        """True if the signature came, bare or with delays: once is enough for a race, else it must come every time."""
        return any(rate.hits > 0 if is_race else rate.hits == rate.trials > 0 for rate in (self.bare, self.delayed))


def observe(fix: FixInfo, cell: str, attempts: Iterable[RecordedAttempt], expected: Sequence[Verdict]) -> Shown:
    """What the finished trials of `fix` in `cell` showed; skipped ones showed nothing."""
    ended = [
        (attempt, attempt.finished)
        for attempt in attempts
        if attempt.started.attempt.fixes_off == (fix.name,)
        and attempt.started.attempt.cell.name == cell
        and attempt.finished is not None
    ]
    bare = [finished for attempt, finished in ended if not _is_delayed(attempt, finished)]
    delayed = [finished for attempt, finished in ended if _is_delayed(attempt, finished)]
    both = [*bare, *delayed]
    red = [finished for finished in both if not finished.verdict.is_green and finished.verdict is not Verdict.SKIPPED]
    visits = _visits(fix, both)
    can_reach = None if visits is None else _can_reach(fix, visits)
    effect = CellEffect(
        cell=cell,
        bare=tuple(finished.verdict for finished in bare),
        delayed=tuple(finished.verdict for finished in delayed),
        reached=visits,
        where=_first_effect(red[0]) if red else _no_effect(both, visits, can_reach),
    )
    return Shown(
        effect,
        _rate(fix, bare, expected),
        _rate(fix, delayed, expected),
        Counter(map(_describe, red)),
        Counter(_describe(finished) for finished in red if not _is_hit(fix, finished, expected)),
        can_reach,
    )


def describe_visits(visits: dict[str, int]) -> str:
    """`reached: eager 412, replay 0`."""
    return f"reached: {', '.join(f'{phase} {count}' for phase, count in visits.items())}"


def _is_delayed(attempt: RecordedAttempt, finished: AttemptFinished) -> bool:
    return any(delay.rank < finished.facts.num_ranks for delay in attempt.started.attempt.delays)


def _rate(fix: FixInfo, ended: Iterable[AttemptFinished], expected: Sequence[Verdict]) -> Rate:
    ran = [finished for finished in ended if finished.verdict is not Verdict.SKIPPED]
    return Rate(sum(_is_hit(fix, finished, expected) for finished in ran), len(ran))


def _is_hit(fix: FixInfo, finished: AttemptFinished, expected: Sequence[Verdict]) -> bool:
    """The declared verdict in the declared phase; where the phase is not known, nothing speaks against it."""
    return finished.verdict in expected and (
        fix.signature.phase == "any" or _phase(finished) in (fix.signature.phase, None)
    )


def _phase(finished: AttemptFinished) -> str | None:
    """The phase in which an attempt first went wrong, as far as it is known."""
    if finished.facts.stall is not None:
        return finished.facts.stall.phase
    if finished.verdict is Verdict.TOKENS:
        return _phase_of(min(_wrong(finished), key=_age, default=None))
    causes = [error.phase for error in finished.facts.errors if not error.consequence]
    return causes[0] if causes else None


def _phase_of(prompt: PromptResult | None) -> Phase | None:
    """Prefill gives a prompt's first token, decode the others."""
    if prompt is None or prompt.step is None:
        return None
    return "prefill" if prompt.step == 0 else "decode"


def _age(prompt: PromptResult) -> tuple[bool, int]:
    """Earlier engine steps first; a token that never came has none."""
    return prompt.engine_step is None, prompt.engine_step or 0


def _wrong(finished: AttemptFinished) -> list[PromptResult]:
    different = (prompt for prompt in finished.prompts if prompt.step is not None)
    return [prompt for prompt in different if prompt.outcome is not Outcome.NEAR_TIE]


def _describe(finished: AttemptFinished) -> str:
    phase = _phase(finished)
    return finished.verdict if phase is None else f"{finished.verdict} in {phase}"


def _first_effect(finished: AttemptFinished) -> str:
    """`in decode, step 12`, `from token 1, 12 of 12 prompts`, or the verdict's reason."""
    if finished.facts.stall is not None:
        return f"in {finished.facts.stall.phase}, step {finished.facts.stall.step}"
    steps = [prompt.step for prompt in _wrong(finished) if prompt.step is not None]
    if finished.verdict is Verdict.TOKENS and steps:
        return f"from token {min(steps)}, {len(steps)} of {len(finished.prompts)} prompts"
    return finished.reason


def _no_effect(ended: Sequence[AttemptFinished], visits: dict[str, int] | None, can_reach: int | None) -> str:
    skipped = next((finished.reason for finished in ended if finished.verdict is Verdict.SKIPPED), "")
    if skipped or not ended:
        return skipped
    if visits is None:
        return "no effect"
    return f"{'no effect' if can_reach else 'never reached'}; {describe_visits(visits)}"


def _visits(fix: FixInfo, ended: Iterable[AttemptFinished]) -> dict[str, int] | None:
    """Visits of the fix's site per phase, over all ranks and trials that gave evidence of it."""
    total: Counter[str] | None = None
    for finished in ended:
        for evidence in finished.facts.evidence.values():
            if evidence.sites is not None and fix.name in evidence.sites:
                total = total or Counter()
                # Not `+`, which drops zeros: a phase that was never reached is what a reader looks for.
                total.update(evidence.sites[fix.name])
    return None if total is None else dict(total)


def _can_reach(fix: FixInfo, visits: dict[str, int]) -> int:
    """Visits where the fix can act: one that acts with graphs alone is not reached by an eager step."""
    return sum(count for phase, count in visits.items() if phase != "eager" or "graph" not in fix.signature.where)
