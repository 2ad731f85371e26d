"""Owns the sentences of reports: what a run ran on, what it adds up to, and what to do next."""

from collections.abc import Mapping, Sequence

from graphcheck.harness.judging.findings import is_usable
from graphcheck.harness.judging.locus import Locus, loci
from graphcheck.harness.judging.patterns import first_tp
from graphcheck.harness.judging.signatures import looks_like, recorded_signatures
from graphcheck.harness.records.run_folder import RecordedAttempt
from graphcheck.harness.records.summary import Summary
from graphcheck.schema.ablation import Finding
from graphcheck.schema.exit_codes import MEANING, ExitCode
from graphcheck.schema.run import RunInfo

UNFINISHED = "UNFINISHED"
"""Shown for a cell that has no verdict because the run ended first."""

EAGER_BY_DECLARATION = "PASS (eager by declaration)"
MOST_NAMES = 4

_NEXT: dict[ExitCode, str] = {
    ExitCode.PASS: "switch a fix off and see what it prevents: `graphcheck run matrix --disable-fix NAME`, "
    "names by `graphcheck list fixes`",
    ExitCode.TOKENS: "read the first difference above; run the same command again to see whether it keeps its place",
    ExitCode.USAGE: "correct what ended the run, then run the same command again; what had finished is in {run}",
    ExitCode.HANG: "compare the ranks' last tags above; their logs and stacks are in {attempt}",
    ExitCode.CRASH: "read the ranks' logs in {attempt}",
    ExitCode.VACUOUS: "read above which path was not taken, or what is missing here (see `graphcheck doctor`); a green "
    "that took another path would prove nothing",
    ExitCode.GOLDEN: "if model and suite are as intended, make the golden again with the same matrix and model: "
    "`graphcheck golden regen [MATRIX] [--model DIR]`",
    ExitCode.UNPROVEN: "read above which fix is not proven; with `--repeats N` or `--delay` a race may show itself",
    ExitCode.INCOMPLETE: "run the same command where every cell has its devices, or accept skipped cells with "
    "`--allow-skipped`; what had finished is in {run}",
    ExitCode.INTERNAL: "report it with its traceback; what had finished is in {run}",
    ExitCode.INTERRUPTED: "run the same command again; what had finished is in {run}",
    ExitCode.TERMINATED: "run the same command again; what had finished is in {run}",
}

_NEXT_AFTER_PROOF = "paste the evidence into the pull request: `graphcheck report {run} --format markdown`"
_NEXT_WHERE_NONE_CAN_ACT = (
    "run cells in which the fix can act, which its line above tells, or name with `--fix` those to ablate"
)

RED_BASELINE = "the baseline is red with every fix on: ablating a red engine proves nothing"
NOT_RUN = "-: the fix cannot act in this cell, so the cell was not run with it off"

CPU_ONLY_TORCH = (
    "warning: this machine has {nvidia_devices} NVIDIA device(s), but torch {torch} is a CPU build: nothing here is "
    "evidence about CUDA graphs"
)


def names(keys: Sequence[str]) -> str:
    """Attempts that share a story, the first few by name."""
    more = len(keys) - MOST_NAMES
    return ", ".join(keys[:MOST_NAMES]) + (f" and {more} more cells" if more > 0 else "")


def title(info: RunInfo, path: str) -> str:
    """What ran, and everything that made it differ from what its matrix says."""
    line = f"graphcheck {info.graphcheck}, matrix {info.matrix_name} on target {info.matrix.target}, run {path}"
    if info.fixes_off:
        line += f"; fixes off: {', '.join(info.fixes_off)}"
    if info.overrides:
        line += f"; changed: {', '.join(f'{name}={value}' for name, value in info.overrides.items())}"
    return line


def last_line(code: ExitCode, paths: Mapping[str, str], findings: Sequence[Finding] = ()) -> str:
    """`exit 0: pass; next: ...`; `paths` holds the folders `run` and `attempt` that the advice may name.

    `findings` are an ablation's, which has other advice to give.
    """
    advice = _NEXT[code]
    if findings and code is ExitCode.PASS:
        advice = _NEXT_AFTER_PROOF
    elif code is ExitCode.UNPROVEN and {one for one in findings if not one.is_proof} == {Finding.CANNOT_ACT}:
        advice = _NEXT_WHERE_NONE_CAN_ACT
    return f"exit {int(code)}: {MEANING[code]}; next: {advice.format_map(paths)}"


def summary_line(summary: Summary) -> str:
    """`6/6 cells, 72/72 token-exact (tape on CPU, no CUDA graph ran)`, and whatever else a reader must not miss."""
    counts = {
        "near ties": summary.num_near_ties,
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
    """What the red cells of a run have in common: their locus, the first TP size, the fix whose absence they show."""
    known = recorded_signatures()
    return [*locus_lines(loci(attempts)), *first_tp(attempts), *looks_like(info, attempts, known)]


def backend_phrase(summary: Summary) -> str:
    """What the work ran on, so that a CPU green can never pass for CUDA evidence."""
    backends = summary.backends
    if not backends:
        return "no rank gave evidence, no CUDA graph ran"
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
    rest = f"{left_out} cell{'s' * (left_out > 1)} not run"
    return [f"--fail-fast: stopped at {last.key}, {last.verdict}; {rest}"]


def memory_notes(attempts: Sequence[RecordedAttempt]) -> list[str]:
    """Said once: no verdict can tell of leaks where nobody could read the GPUs' memory."""
    on_gpus = [a.finished for a in attempts if a.finished and a.started.settings.get("device") == "cuda"]
    ran = [finished.facts for finished in on_gpus if finished.facts.num_ranks]
    unknown = sum(facts.leaked is None for facts in ran)
    if not unknown:
        return []
    return [f"leaks UNKNOWN: memory in use on the GPUs could not be read after {unknown} of {len(ran)} attempts there"]
