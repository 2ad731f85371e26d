"""Owns what a run does not show, in sentences drawn from the run itself; each is said even where it is none."""

from collections.abc import Iterator

from graphcheck.harness.judging.findings import red_baseline
from graphcheck.harness.judging.summary import summarize
from graphcheck.harness.records.run_folder import Run
from graphcheck.report import words
from graphcheck.report.ablation import without_trials
from graphcheck.schema.run import RecordedAttempt
from graphcheck.schema.verdicts import Verdict


def limitations(run: Run) -> list[str]:
    """One sentence or two a limitation; a pure function of the run folder.

    Raises:
        GoldenCorrupt: the run's copy of a golden is missing or damaged.
    """
    return [
        _backend(run),
        _not_run(run),
        _shared(run),
        _delays(run),
        *_trials(run),
        *_unproven_paths(run),
        _single_values(run),
        _soft_steps(run),
        "Graphs stay opt-in: nothing here asks for another default.",
        "No performance claim: times are not compared.",
    ]


def _backend(run: Run) -> str:
    summary = summarize(run.info, run.attempts)
    sentence = f"Backend and devices: {words.backend_phrase(summary)}; no other was tried."
    told_cuda = any(backend.graph == "cuda" for backend in summary.backends)
    if told_cuda or (not summary.backends and _ran_on_gpus(run)):
        return sentence
    return f"{sentence} This is no evidence about CUDA graphs, NCCL or GPUs."


def _ran_on_gpus(run: Run) -> bool:
    """True if ranks were started on GPUs: those that hang there tell nothing of it."""
    return any(
        attempt.finished is not None
        and attempt.finished.facts.num_ranks
        and attempt.started.settings.get("device") == "cuda"
        for attempt in run.attempts
    )


def _not_run(run: Run) -> str:
    parts = []
    if "select" in run.info.overrides:
        parts.append(f"those that `-k {run.info.overrides['select']}` leaves out")
    skipped: dict[str, list[str]] = {}
    for attempt in without_trials(run).attempts:
        if attempt.finished is not None and attempt.finished.verdict is Verdict.SKIPPED:
            skipped.setdefault(attempt.finished.reason, []).append(attempt.started.attempt.cell.name)
    parts += [f"{', '.join(cells)} ({reason})" for reason, cells in skipped.items()]
    num_unfinished = summarize(run.info, run.attempts).num_unfinished
    if num_unfinished:
        why = "the baseline was red" if _stopped_at_once(run) else "the run ended first"
        parts.append(f"{num_unfinished} of {len(run.info.planned)} attempts, because {why}")
    return f"Cells not run: {'; '.join(parts) or 'none'}."


def _shared(run: Run) -> str:
    most = summarize(run.info, run.attempts).ranks_a_gpu
    return f"Shared GPUs: {f'up to {most} ranks on one, which slow each other and take turns' if most > 1 else 'none'}."


def _delays(run: Run) -> str:
    injected = dict.fromkeys(delay.name for attempt in run.attempts for delay in attempt.started.attempt.delays)
    return f"Injected delays: {', '.join(injected) or 'none'}."


def _trials(run: Run) -> Iterator[str]:
    ablation = run.info.ablation
    if ablation is None or not any(map(_is_trial, run.attempts)):
        return
    times = "once" if ablation.repeats == 1 else f"{ablation.repeats} times"
    yield f"Fixes were switched off one at a time, {times} in each cell where they can act; never two together."


def _is_trial(attempt: RecordedAttempt) -> bool:
    """True if a fix was off and a verdict shows what came of it."""
    finished = attempt.finished
    return bool(attempt.started.attempt.fixes_off) and finished is not None and finished.verdict is not Verdict.SKIPPED


def _stopped_at_once(run: Run) -> bool:
    return run.info.ablation is not None and bool(red_baseline(run.attempts))


def _unproven_paths(run: Run) -> Iterator[str]:
    cells_only = without_trials(run)
    summary = summarize(cells_only.info, cells_only.attempts)
    if summary.num_unwitnessed:
        cells = f"{summary.num_unwitnessed} of {summary.num_cells} cells"
        yield f"Unwitnessed: in {cells} nobody could tell whether graphs were replayed."
    if summary.num_declared_eager:
        cells = f"{summary.num_declared_eager} of {summary.num_cells} cells"
        yield f"Eager by declaration: in {cells} graphs were on and fell back, as the matrix says they do."


def _single_values(run: Run) -> str:
    """Axes and settings that this run did not vary."""
    values: dict[str, set[str]] = {}
    for attempt in run.attempts:
        started = attempt.started
        for name, value in {"model": started.model, "suite": started.suite, **started.settings}.items():
            values.setdefault(name, set()).add(str(value))
    single = [f"{name} {value}" for name, (value, *others) in values.items() if not others]
    return f"One value only: {', '.join(single)}."


def _soft_steps(run: Run) -> str:
    goldens = {
        (started.model, started.suite, started.dtype): started
        for started in (attempt.started for attempt in run.attempts)
        if started.workload is not None
    }
    steps = [step for started in goldens.values() for prompt in run.golden(started).prompts for step in prompt.steps]
    return f"Soft steps (too close to call, not judged hard): {sum(step.soft for step in steps)} of {len(steps)}."
