"""Owns the finding on each fix: a pure function of what an ablation asked for and what its trials recorded."""

from collections import Counter
from collections.abc import Iterable, Sequence

from graphcheck.harness.judging.effects import Rate, Shown, describe_visits, observe
from graphcheck.harness.judging.rates import describe, interval
from graphcheck.harness.judging.summary import nothing_ran, summarize
from graphcheck.schema.ablation import Ablation, Finding, FixFinding
from graphcheck.schema.capabilities import FixInfo
from graphcheck.schema.evidence import Backend
from graphcheck.schema.exit_codes import ENDING, ExitCode, worst
from graphcheck.schema.run import AttemptFinished, RecordedAttempt, RunInfo
from graphcheck.schema.verdicts import Verdict

RESTORED_REPEAT = 1
"""Repeat number of the run with every fix back on; repeat 0 is the baseline."""


def baseline(attempts: Sequence[RecordedAttempt]) -> list[RecordedAttempt]:
    """The attempts with every fix on that came first, without the delayed ones."""
    return [a for a in _intact(attempts, 0) if not a.started.attempt.delays]


def is_usable(finished: AttemptFinished) -> bool:
    """Green, or skipped: a cell that has no device here says nothing about the engine."""
    return finished.verdict.is_green or finished.verdict is Verdict.SKIPPED


def red_baseline(attempts: Sequence[RecordedAttempt]) -> list[RecordedAttempt]:
    """The attempts, bare or delayed, that were red with every fix on before any was switched off."""
    return [a for a in _intact(attempts, 0) if a.finished is not None and not is_usable(a.finished)]


def ablation_exit_code(info: RunInfo, attempts: Sequence[RecordedAttempt]) -> ExitCode:
    """The code of what ended the run early, a red baseline's own, else 0, 5, 7 or 8."""
    if info.exit_code in ENDING:
        return ExitCode(info.exit_code)
    red = [a.finished.verdict.exit_code for a in red_baseline(attempts) if a.finished is not None]
    if red:
        return worst(red)
    codes = [ExitCode.PASS]
    if not all(finding.finding.is_proof for finding in find(info, attempts)):
        codes.append(ExitCode.UNPROVEN)
    first = baseline(attempts)
    if summarize(info, first).lacks_backend or nothing_ran([a.finished for a in first if a.finished is not None]):
        codes.append(ExitCode.VACUOUS)
    is_skipped = any(a.finished is not None and a.finished.verdict is Verdict.SKIPPED for a in attempts)
    if _unfinished(info, attempts) or (is_skipped and not info.overrides.get("allow_skipped")):
        codes.append(ExitCode.INCOMPLETE)
    return worst(codes)


def find(info: RunInfo, attempts: Sequence[RecordedAttempt]) -> tuple[FixFinding, ...]:
    """One finding a fix, in the order in which they were asked for.

    Raises:
        ValueError: the run is no ablation.
    """
    if info.ablation is None:
        raise ValueError(f"run of {info.matrix_name}: not an ablation")
    unfinished = _unfinished(info, attempts)
    return tuple(_find(info.ablation, fix, attempts, unfinished) for fix in info.ablation.fixes)


def _intact(attempts: Sequence[RecordedAttempt], repeat: int) -> list[RecordedAttempt]:
    """Attempts with every fix on: the baseline, or the run at the end."""
    return [a for a in attempts if not a.started.attempt.fixes_off and a.started.attempt.repeat == repeat]


def _unfinished(info: RunInfo, attempts: Sequence[RecordedAttempt]) -> bool:
    return bool(set(info.planned) - {a.started.key for a in attempts if a.finished is not None})


def _find(ablation: Ablation, fix: FixInfo, attempts: Sequence[RecordedAttempt], unfinished: bool) -> FixFinding:
    declared = _declared(fix, [a.finished.backend for a in attempts if a.finished is not None and a.finished.backend])
    expected = tuple(verdict for verdict in declared if not ablation.expect or verdict in ablation.expect)
    shown = [observe(fix, cell, attempts, expected) for cell in ablation.cells[fix.name]]
    if any(one.ran for one in shown):
        finding, reason = _judge(fix, shown, declared, expected, ", ".join(delay.name for delay in ablation.delays))
    else:
        finding, reason = _not_run(ablation, fix, shown, unfinished)
    doubt = _doubt(attempts, unfinished)
    if doubt and finding in (Finding.NECESSARY, Finding.OTHER_SIGNATURE):
        finding, reason = Finding.NOT_REPRODUCED, f"{reason}; but {doubt}"
    effects = tuple(one.effect for one in shown)
    return FixFinding(fix=fix.name, finding=finding, expected=expected, effects=effects, reason=reason)


def _declared(fix: FixInfo, backends: Iterable[Backend]) -> tuple[Verdict, ...]:
    """The signature for the graph backend that ran; of a run without graphs, for the one that its device would have."""
    shows, ran = fix.signature.shows, list(backends)
    graphs = next((backend.graph for backend in ran if backend.graph), None)
    if graphs is not None:
        return shows.get(graphs, ())
    on_cuda = any(backend.device == "cuda" for backend in ran)
    return next((verdicts for graph, verdicts in shows.items() if (graph == "cuda") == on_cuda), ())


def _judge(
    fix: FixInfo, shown: Sequence[Shown], declared: Sequence[Verdict], expected: Sequence[Verdict], delays: str
) -> tuple[Finding, str]:
    ran = [one for one in shown if one.ran]
    is_race = len(declared) > 1
    wanted = _wanted(fix, declared, expected)
    shows = [one for one in ran if one.shows(is_race=is_race)]
    red, misses = (sum(counts, Counter[str]()) for counts in zip(*((one.red, one.misses) for one in ran), strict=True))
    if len(shows) == len(ran):
        reason = f"without it {_came(fix, red - misses)} in {_how_many(shown)}{_rates(ran, delays)}"
        besides = f"; besides came {_counted(misses)}" if misses else ""
        return Finding.NECESSARY, f"{reason}{_bare(shows, delays)}{besides}"
    if misses:
        return Finding.OTHER_SIGNATURE, f"expected {wanted}, and came {_counted(red)}"
    if red:
        return Finding.NOT_REPRODUCED, f"{wanted} did not come every time{_rates(ran, delays, always=True)}"
    visits = [one for one in ran if one.can_reach is not None]
    if visits and not any(one.can_reach for one in visits):
        total: Counter[str] = Counter()
        for one in visits:
            total.update(one.effect.reached or {})
        return Finding.NEVER_REACHED, describe_visits(total)
    if is_race:
        bound = max(interval(0, rate.trials)[1] for one in ran for rate in (one.bare, one.delayed) if rate.trials)
        unseen = f"a race that shows in up to {bound:.0%} of trials would look like that"
        return Finding.NOT_REPRODUCED, f"no effect{_rates(ran, delays, always=True)}; {unseen}"
    if not visits:
        return Finding.NOT_REPRODUCED, "no effect, and no rank told whether its site was reached"
    return Finding.REDUNDANT, f"reached, and without it all stayed green in {_how_many(shown)}"


def _came(fix: FixInfo, hits: Iterable[str]) -> str:
    """`HANG`, or `TOKENS in decode` where the signature tells the phase: of what was declared, what was seen."""
    phase_counts = fix.signature.phase != "any"
    return " or ".join(dict.fromkeys(hit if phase_counts else hit.partition(" in ")[0] for hit in hits))


def _counted(what: Counter[str]) -> str:
    return ", ".join(f"{name} x {count}" for name, count in what.items())


def _how_many(shown: Sequence[Shown]) -> str:
    """`1 of 2 cells, 1 skipped`: of the cells where a fix is declared to act, those that tell of it."""
    num_skipped = sum(bool(one.effect.verdicts) and not one.ran for one in shown)
    skipped = f", {num_skipped} skipped" if num_skipped else ""
    return f"{sum(one.ran for one in shown)} of {len(shown)} cells{skipped}"


def _wanted(fix: FixInfo, declared: Sequence[Verdict], expected: Sequence[Verdict]) -> str:
    if not declared:
        return "nothing (it declares no signature for this backend)"
    if not expected:
        return f"nothing (its signature is {' or '.join(declared)})"
    phase = fix.signature.phase
    return " or ".join(expected) + ("" if phase == "any" else f" in {phase}")


def _not_run(ablation: Ablation, fix: FixInfo, shown: Sequence[Shown], unfinished: bool) -> tuple[Finding, str]:
    if not shown:
        where = " and ".join(f"{axis} is {' or '.join(map(str, v))}" for axis, v in fix.signature.where.items())
        return (
            Finding.CANNOT_ACT,
            f"it acts only where {where}: in none of {ablation.num_selected_cells} selected cells",
        )
    skipped = next((one.effect.where for one in shown if one.effect.verdicts), None)
    if skipped is None and unfinished:
        return Finding.NOT_REPRODUCED, "the run ended before its first trial"
    return Finding.CANNOT_ACT, f"every cell where it acts was skipped: {skipped}"


def _doubt(attempts: Sequence[RecordedAttempt], unfinished: bool) -> str:
    """Why an effect is no proof: it was not seen to go away when the fix was put back."""
    if unfinished:
        return "the run ended before every trial had"
    # A cell that could not run at first need not run at the end; one that ran must, or nobody saw it green again.
    never_ran = {a.started.attempt.cell.name for a in _skipped(_intact(attempts, 0))}
    restored = [a for a in _intact(attempts, RESTORED_REPEAT) if a.started.attempt.cell.name not in never_ran]
    red = [f"{a.started.key} {a.finished.verdict}" for a in restored if a.finished and not a.finished.verdict.is_green]
    return f"with every fix back on, not all was green again: {', '.join(red)}" if red else ""


def _skipped(attempts: Sequence[RecordedAttempt]) -> list[RecordedAttempt]:
    return [a for a in attempts if a.finished is not None and a.finished.verdict is Verdict.SKIPPED]


def _rates(ran: Sequence[Shown], delays: str, *, always: bool = False) -> str:
    """`; bare 7/10 (95 % interval 35-93 %) in tp2-graph_on`: how often the signature came.

    Cells that fared alike stand together; where each had a single trial, bare, the number of cells says it all.
    """
    text = ""
    for name, by_cell in (
        ("bare", {one.effect.cell: one.bare for one in ran if one.bare.trials}),
        (f"with {delays}", {one.effect.cell: one.delayed for one in ran if one.delayed.trials}),
    ):
        rates = dict.fromkeys(by_cell.values())
        for rate in rates if always or delays or any(rate.trials > 1 for rate in rates) else ():
            cells = [cell for cell, other in by_cell.items() if other == rate]
            where = "each cell" if len(cells) == len(ran) > 1 else ", ".join(cells)
            text += f"; {name} {_rate(rate, always=always)} in {where}"
    return text


def _rate(rate: Rate, *, always: bool) -> str:
    return describe(rate.hits, rate.trials) if always or rate.trials > 1 else f"{rate.hits}/{rate.trials}"


def _bare(shows: Sequence[Shown], delays: str) -> str:
    """Whether a fault that was looked for with delays shows without them too."""
    if not delays:
        return ""
    if not any(one.delayed.trials for one in shows):
        return "; none of its cells has a rank for these delays"
    bare = [one for one in shows if one.bare.hits]
    if len(bare) == len(shows):
        return "; it shows bare too"
    return (
        f"; it shows bare in {', '.join(one.effect.cell for one in bare)} only" if bare else "; it does not show bare"
    )
