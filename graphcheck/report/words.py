"""Owns the sentences of reports: what a run ran on and what it adds up to."""

from collections.abc import Mapping, Sequence

from graphcheck.harness.judging.findings import is_usable
from graphcheck.harness.judging.locus import Locus, loci
from graphcheck.harness.judging.patterns import first_tp
from graphcheck.harness.judging.signatures import looks_like, recorded_signatures
from graphcheck.harness.judging.summary import Summary
from graphcheck.report.rerun import as_typed
from graphcheck.schema.run import AttemptFinished, RecordedAttempt, RunInfo
from graphcheck.schema.verdicts import Outcome

UNFINISHED = "UNFINISHED"
"""Shown for a cell that has no verdict because the run ended first."""

EAGER_BY_DECLARATION = "PASS (eager by declaration)"
MOST_NAMES = 4

RED_BASELINE = "the baseline is red with every fix on: ablating a red engine proves nothing"
NOT_RUN = "-: the fix cannot act in this cell, so the cell was not run with it off"

CPU_ONLY_TORCH = (
    "warning: this machine has {nvidia_devices} NVIDIA device(s), but torch {torch} is a CPU build: nothing here is "
    "evidence about CUDA graphs"
)


def counted(number: int, noun: str) -> str:
    """`1 cell`, `2 cells`."""
    return f"{number} {noun}{'s' * (number != 1)}"


def num_near_tied(finished: AttemptFinished) -> int:
    """Prompts that differ from their golden by near ties alone."""
    return sum(prompt.outcome is Outcome.NEAR_TIE for prompt in finished.prompts)


def exactness(exact: int, prompts: int, near_ties: int) -> str:
    """`5/16 +11 near ties`: of some prompts those that are token-exact, and those that differ by near ties alone."""
    return f"{exact}/{prompts}" + (f" +{counted(near_ties, 'near tie')}" if near_ties else "")


def names(keys: Sequence[str]) -> str:
    """Attempts that share a story, the first few by name."""
    more = len(keys) - MOST_NAMES
    return ", ".join(keys[:MOST_NAMES]) + (f" and {counted(more, 'more cell')}" if more > 0 else "")


def title(info: RunInfo, path: str) -> str:
    """What ran, and everything that made it differ from what its matrix says."""
    line = f"graphcheck {info.graphcheck}, matrix {info.matrix_name} on target {info.matrix.target}, run {path}"
    if info.fixes_off:
        line += f"; fixes off: {', '.join(info.fixes_off)}"
    if info.overrides:
        line += f"; changed: {as_typed(info.overrides)}"
    return line


def summary_line(summary: Summary) -> str:
    """`6/6 cells, 72/72 token-exact (tape on CPU, no CUDA graph ran)`, and whatever else a reader must not miss."""
    counts = {
        f"near tie{'s' * (summary.num_near_ties != 1)}": summary.num_near_ties,
        "unwitnessed": summary.num_unwitnessed,
        "eager by declaration": summary.num_declared_eager,
        "skipped": summary.num_skipped,
        "unfinished": summary.num_unfinished,
    }
    line = f"{summary.num_green}/{summary.num_cells} cells, {summary.num_exact}/{summary.num_prompts} token-exact"
    line += f" ({backend_phrase(summary)})"
    line += "".join(f", {count} {name}" for name, count in counts.items() if count)
    if summary.lacks_backend:
        line += f"; --require-backend {summary.lacks_backend}: no green cell replayed graphs on it alone"
    return line


def locus_lines(found: Sequence[Locus]) -> list[str]:
    """`locus: graph (red: tp1-graph_on, tp2-graph_on)`, one line a name, TP sizes that agree together."""
    lines: dict[tuple[str, str], list[Locus]] = {}
    for locus in found:
        rest = ", ".join(f"{axis}={value}" for axis, value in locus.rest)
        lines.setdefault((locus.name, rest), []).append(locus)
    return [
        f"locus{f' ({rest})' if rest else ''}: {name}; red corners: "
        + ", ".join(dict.fromkeys(corner for locus in together for corner in locus.red))
        for (name, rest), together in lines.items()
    ]


def where_lines(info: RunInfo, attempts: Sequence[RecordedAttempt]) -> list[str]:
    """What the red cells of a run have in common: their locus, the first TP size, the fix whose absence they show.

    That a fix which was switched off is absent is no news.
    """
    known = tuple(f"looks like `{fix}` off" for fix in info.fixes_off)
    alike = [line for line in looks_like(info, attempts, recorded_signatures()) if not line.startswith(known)]
    return [*locus_lines(loci(attempts)), *first_tp(attempts), *alike]


def backend_phrase(summary: Summary) -> str:
    """What the work ran on, so that a CPU green can never pass for CUDA evidence.

    Ranks that hang give no evidence, whatever they ran; and where all was skipped there was none to give any.
    """
    backends = summary.backends
    if not backends:
        return "no rank told what it ran on"
    graphs = sorted({backend.graph for backend in backends if backend.graph})
    if graphs == ["cuda"]:
        names = " + ".join(dict.fromkeys(backend.device_name.removeprefix("NVIDIA ") for backend in backends))
        transports = ", ".join(dict.fromkeys(backend.collectives for backend in backends if backend.collectives))
        gpus = f"{summary.num_gpus}x {names}" if summary.num_gpus else names
        sharing = f"up to {summary.ranks_a_gpu} ranks a GPU" if summary.ranks_a_gpu > 1 else ""
        return ", ".join(filter(None, ("CUDA graphs", gpus, transports, sharing)))
    devices = " + ".join(sorted({backend.device.upper() for backend in backends}))
    ran = f"{' + '.join(graphs)} on {devices}" if graphs else devices
    return ran if "cuda" in graphs else f"{ran}, no CUDA graph ran"


def warnings(environment: Mapping[str, str]) -> list[str]:
    """What must be said before anything else."""
    if environment.get("nvidia_devices", "0") != "0" and environment.get("torch_cuda") == "none":
        return [CPU_ONLY_TORCH.format_map(environment)]
    return []


def fail_fast_notes(info: RunInfo, attempts: Sequence[RecordedAttempt]) -> list[str]:
    """Which red cell ended a run with `--fail-fast`, and how many cells it left out."""
    left_out = len(info.planned) - len(attempts)
    last = attempts[-1].finished if attempts else None
    if not info.overrides.get("fail_fast") or not left_out or last is None or is_usable(last):
        return []
    return [f"--fail-fast: stopped at {last.key}, {last.verdict}; {counted(left_out, 'cell')} not run"]


def memory_notes(attempts: Sequence[RecordedAttempt]) -> list[str]:
    """Said once: no verdict can tell of leaks where nobody could read the GPUs' memory."""
    on_gpus = [a.finished for a in attempts if a.finished and a.started.settings.get("device") == "cuda"]
    ran = [finished.facts for finished in on_gpus if finished.facts.num_ranks]
    unknown = sum(facts.leaked is None for facts in ran)
    if not unknown:
        return []
    return [f"leaks UNKNOWN: memory in use on the GPUs could not be read after {unknown} of {len(ran)} attempts there"]
