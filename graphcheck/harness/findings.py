"""Owns the finding on each fix: a pure function of what an ablation asked for and what its trials recorded."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from graphcheck.harness.rates import describe, interval
from graphcheck.harness.run_folder import RecordedAttempt
from graphcheck.schema.ablation import Ablation, CellEffect, Finding, FixFinding
from graphcheck.schema.capabilities import FixInfo
from graphcheck.schema.exit_codes import ExitCode, worst
from graphcheck.schema.run import AttemptFinished, RunInfo
from graphcheck.schema.verdicts import Verdict

RESTORED_REPEAT = 1
"""Repeat number of the run with every fix back on; repeat 0 is the baseline."""


def baseline(attempts: Sequence[RecordedAttempt]) -> list[RecordedAttempt]:
    """The attempts with every fix on that came first."""
    return [a for a in attempts if not a.started.attempt.fixes_off and a.started.attempt.repeat == 0]


def ablation_exit_code(info: RunInfo, attempts: Sequence[RecordedAttempt]) -> ExitCode:
    """The code of a finished ablation: a red baseline's own, else 0 or 7."""
    first = [attempt.finished for attempt in baseline(attempts) if attempt.finished is not None]
    red = [one.verdict.exit_code for one in first if not one.verdict.is_green and one.verdict is not Verdict.SKIPPED]
    if red:
        return worst(red)
    proven = all(finding.finding.is_proof for finding in find(info, attempts))
    return ExitCode.PASS if proven else ExitCode.UNPROVEN


def find(info: RunInfo, attempts: Sequence[RecordedAttempt]) -> tuple[FixFinding, ...]:
    """One finding a fix, in the order in which they were asked for.

    Raises:
        ValueError: the run is no ablation.
    """
    if info.ablation is None:
        raise ValueError(f"run of {info.matrix_name}: not an ablation")
    ablation, backend = info.ablation, _backend(attempts)
    restored_is_green = all(
        attempt.finished is not None and attempt.finished.verdict.is_green
        for attempt in attempts
        if not attempt.started.attempt.fixes_off and attempt.started.attempt.repeat == RESTORED_REPEAT
    )
    return tuple(_find(ablation, fix, attempts, backend, restored_is_green) for fix in ablation.fixes)


def _find(
    ablation: Ablation,
    fix: FixInfo,
    attempts: Sequence[RecordedAttempt],
    backend: str,
    restored_is_green: bool,
) -> FixFinding:
    declared = fix.signature.shows.get(backend, ())
    expected = tuple(verdict for verdict in declared if not ablation.expect or verdict in ablation.expect)
    trials = [attempt for attempt in attempts if attempt.started.attempt.fixes_off == (fix.name,)]
    effects = tuple(_effect(fix, cell, trials) for cell in ablation.cells[fix.name])
    finding, reason = _judge(fix, effects, expected, is_race=len(declared) > 1)
    if finding.is_proof and not restored_is_green:
        finding, reason = Finding.NOT_REPRODUCED, f"{reason}; but with the fix back on the cells were not green again"
    return FixFinding(fix=fix.name, finding=finding, expected=expected, effects=effects, reason=reason)


def _backend(attempts: Sequence[RecordedAttempt]) -> str:
    """The graph backend of the baseline, whose signatures count; of a run without graphs, whichever the device has."""
    backends = [a.finished.backend for a in baseline(attempts) if a.finished is not None and a.finished.backend]
    graphs = [backend.graph for backend in backends if backend.graph]
    if graphs:
        return graphs[0]
    return "cuda" if any(backend.device == "cuda" for backend in backends) else "tape"


def _judge(
    fix: FixInfo, effects: Sequence[CellEffect], expected: Sequence[Verdict], *, is_race: bool
) -> tuple[Finding, str]:
    ran = [effect for effect in effects if any(verdict is not Verdict.SKIPPED for verdict in effect.verdicts)]
    if not ran:
        return Finding.CANNOT_ACT, f"no selected cell has {_where(fix)}, or those that have were skipped"
    shown = [effect for effect in ran if _shows(effect, expected, is_race=is_race)]
    wanted = " or ".join(expected) or "nothing that was expected"
    if len(shown) == len(ran):
        return Finding.NECESSARY, f"without it {wanted} in {len(ran)} of {len(ran)} cells; {_rates(ran, expected)}"
    others = Counter(v for effect in ran for v in effect.verdicts if not v.is_green and v not in expected)
    if others:
        seen = ", ".join(f"{verdict} x {count}" for verdict, count in others.items())
        return Finding.OTHER_SIGNATURE, f"expected {wanted}, and came {seen}"
    if shown:
        return Finding.NOT_REPRODUCED, f"{wanted} in only {len(shown)} of {len(ran)} cells; {_rates(ran, expected)}"
    reached = _reached(fix, ran)
    if reached is not None and not any(reached.values()):
        visits = _total(effect.reached for effect in ran)
        return Finding.NEVER_REACHED, f"reached: {', '.join(f'{phase} {n}' for phase, n in visits.items())}"
    if is_race:
        trials = sum(len(effect.verdicts) for effect in ran)
        return (
            Finding.NOT_REPRODUCED,
            f"no effect in {trials} trials of a race: its rate is below {interval(0, trials)[1]:.0%} at 95 %, "
            "which does not make the fix unnecessary",
        )
    return Finding.REDUNDANT, f"reached, and without it every one of {len(ran)} cells stayed green"


def _shows(effect: CellEffect, expected: Sequence[Verdict], *, is_race: bool) -> bool:
    """A declared single signature must come every time; a race shows if it came once."""
    hits = [verdict in expected for verdict in effect.verdicts]
    return any(hits) if is_race else all(hits)


def _effect(fix: FixInfo, cell: str, trials: Iterable[RecordedAttempt]) -> CellEffect:
    here = [
        (trial.started.attempt, trial.finished)
        for trial in trials
        if trial.started.attempt.cell.name == cell and trial.finished is not None
    ]
    ended = [finished for _, finished in here]
    return CellEffect(
        cell=cell,
        bare=tuple(finished.verdict for attempt, finished in here if not attempt.delays),
        delayed=tuple(finished.verdict for attempt, finished in here if attempt.delays),
        reached=_visits(fix.name, ended),
        where=next((_first_effect(finished) for finished in ended if not finished.verdict.is_green), ""),
    )


def _first_effect(finished: AttemptFinished) -> str:
    """`hang in decode, step 12`, `from token 1 of 12 prompts`, or the verdict's reason."""
    if finished.facts.stall is not None:
        return f"{finished.facts.stall.kind} in {finished.facts.stall.phase}, step {finished.facts.stall.step}"
    wrong = [prompt.step for prompt in finished.prompts if prompt.step is not None]
    if finished.verdict is Verdict.TOKENS and wrong:
        return f"from token {min(wrong)}, {len(wrong)} of {len(finished.prompts)} prompts"
    return finished.reason


def _visits(fix: str, ended: Iterable[AttemptFinished]) -> dict[str, int] | None:
    """Visits of the fix's site per phase, over all ranks and trials that gave evidence of it."""
    known = [
        evidence.sites[fix]
        for finished in ended
        for evidence in finished.facts.evidence.values()
        if evidence.sites is not None and fix in evidence.sites
    ]
    return _total(known) if known else None


def _reached(fix: FixInfo, ran: Iterable[CellEffect]) -> dict[str, int] | None:
    """Visits in the phases where the fix can act: a fix of captured steps is not reached by eager ones."""
    total = _total(effect.reached for effect in ran)
    if not total:
        return None
    return {phase: n for phase, n in total.items() if phase != "eager" or "graph" not in fix.signature.where}


def _total(counts: Iterable[Mapping[str, int] | None]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count or {})
    return dict(total)


def _rates(ran: Iterable[CellEffect], expected: Sequence[Verdict]) -> str:
    """How often it came, bare and with delays, with exact intervals where there are several trials."""
    parts = []
    for name, verdicts in (
        ("bare", [verdict for effect in ran for verdict in effect.bare]),
        ("with delays", [verdict for effect in ran for verdict in effect.delayed]),
    ):
        if verdicts:
            parts.append(f"{name} {describe(sum(verdict in expected for verdict in verdicts), len(verdicts))}")
    return ", ".join(parts)


def _where(fix: FixInfo) -> str:
    return " and ".join(f"{axis} in {', '.join(map(str, values))}" for axis, values in fix.signature.where.items())
