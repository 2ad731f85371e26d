"""Owns what a run adds up to: its counts and its exit code, from its records alone."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from graphcheck.schema.evidence import Backend
from graphcheck.schema.exit_codes import ENDING, ExitCode, worst
from graphcheck.schema.run import AttemptFinished, RecordedAttempt, RunInfo
from graphcheck.schema.verdicts import Outcome, Verdict


@dataclass(frozen=True)
class Summary:
    """Counts over the planned attempts of a run; prompts are those of attempts that had any to run.

    `num_gpus` are those that ranks say they computed on, `ranks_a_gpu` the most that an attempt had on one of them.
    """

    num_cells: int
    num_green: int
    num_exact: int
    num_near_ties: int
    num_prompts: int
    num_skipped: int
    num_unwitnessed: int
    num_declared_eager: int
    num_unfinished: int
    backends: tuple[Backend, ...]
    num_gpus: int
    ranks_a_gpu: int
    lacks_backend: str | None
    exit_code: ExitCode


def num_exact(attempt: AttemptFinished) -> int:
    """How many prompts of an attempt are token-exact."""
    return sum(prompt.outcome is Outcome.EXACT for prompt in attempt.prompts)


def summarize(info: RunInfo, attempts: Sequence[RecordedAttempt]) -> Summary:
    """Adds up a run. A run that was ended early keeps that exit code; else the worst of its verdicts wins."""
    finished = [attempt.finished for attempt in attempts if attempt.finished is not None]
    prompts = [prompt for attempt in finished for prompt in attempt.prompts]
    required = info.overrides.get("require_backend")
    lacks = str(required) if required and not _ran_on(str(required), finished) else None
    num_unfinished = len(info.planned) - len(finished)
    on_gpus = [Counter(rank.gpu for rank in attempt.facts.evidence.values() if rank.gpu) for attempt in finished]
    return Summary(
        num_cells=len(info.planned),
        num_green=sum(attempt.verdict.is_green for attempt in finished),
        num_exact=sum(map(num_exact, finished)),
        num_near_ties=sum(len(prompt.near_ties) for prompt in prompts),
        num_prompts=sum(len(a.started.workload.requests) for a in attempts if a.started.workload is not None),
        num_skipped=sum(attempt.verdict is Verdict.SKIPPED for attempt in finished),
        num_unwitnessed=sum(attempt.verdict is Verdict.UNWITNESSED for attempt in finished),
        num_declared_eager=sum(attempt.declared_eager for attempt in finished),
        num_unfinished=num_unfinished,
        backends=tuple(dict.fromkeys(attempt.backend for attempt in finished if attempt.backend is not None)),
        num_gpus=len(set().union(*on_gpus)),
        ranks_a_gpu=max((ranks for gpus in on_gpus for ranks in gpus.values()), default=0),
        lacks_backend=lacks,
        exit_code=_exit_code(info, finished, num_unfinished, lacks is not None),
    )


def _exit_code(
    info: RunInfo, finished: Sequence[AttemptFinished], num_unfinished: int, lacks_backend: bool
) -> ExitCode:
    if info.exit_code in ENDING:
        return ExitCode(info.exit_code)
    allow_skipped = bool(info.overrides.get("allow_skipped"))
    codes = [
        attempt.verdict.exit_code for attempt in finished if not (allow_skipped and attempt.verdict is Verdict.SKIPPED)
    ]
    if lacks_backend or nothing_ran(finished):
        codes.append(ExitCode.VACUOUS)
    if num_unfinished:
        codes.append(ExitCode.INCOMPLETE)
    return worst(codes)


def nothing_ran(finished: Sequence[AttemptFinished]) -> bool:
    """True if there were cells and each was skipped: less than a run from which some are missing."""
    return bool(finished) and all(attempt.verdict is Verdict.SKIPPED for attempt in finished)


def _ran_on(required: str, finished: Sequence[AttemptFinished]) -> bool:
    """True if graphs were replayed on the required backend in some green cell, and on no other backend in any.

    Green by declaration, because decode fell back as the matrix says it does, is no evidence of any backend.
    """
    graphs = {
        attempt.backend.graph
        for attempt in finished
        if attempt.verdict.is_green and attempt.backend and not attempt.declared_eager
    }
    return graphs - {None} == {required}
