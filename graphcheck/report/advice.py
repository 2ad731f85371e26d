"""Owns the last line of a report: the exit code in words, and what to do next."""

import shlex
from collections.abc import Sequence

from graphcheck.harness.records.run_folder import Run
from graphcheck.report.idle_fixes import idle_fix_notes
from graphcheck.report.rerun import ablation_command, golden_command, names_folder, whole_command
from graphcheck.schema.ablation import Finding
from graphcheck.schema.exit_codes import MEANING, ExitCode
from graphcheck.schema.verdicts import Verdict

CONTRADICTED = "the folder does not bear out its verdicts: restore it, or run again"
"""The note on a run whose folder gives another verdict than the recorded one, or none."""

_NEXT: dict[ExitCode | Verdict, str] = {
    ExitCode.TOKENS: "read the first difference above; {again} to see whether it keeps its place",
    ExitCode.USAGE: "correct what ended the run, then {again}; what had finished is in {run}",
    ExitCode.HANG: "compare above where each rank stands; their stacks are in {attempt}",
    ExitCode.CRASH: "read the ranks' logs in {attempt}",
    Verdict.ERROR: "read the errors above",
    Verdict.LEAK: "see with `nvidia-smi` who holds the memory, and read the ranks' logs in {attempt}",
    ExitCode.VACUOUS: "read above which path was not taken, or what is missing here (see `graphcheck doctor`); a green "
    "that took another path would prove nothing",
    ExitCode.GOLDEN: "if model and suite are as intended, do what is said above of each golden; `{goldens}` makes all "
    "that this run needs",
    ExitCode.UNPROVEN: "read above which fix is not proven; with `--repeats N` or `--delay` a race may show itself",
    ExitCode.INCOMPLETE: "{again} where every cell has its devices, or accept skipped cells with `--allow-skipped`; "
    "what had finished is in {run}",
    ExitCode.INTERNAL: "report it with its traceback; what had finished is in {run}",
    ExitCode.INTERRUPTED: "{again}; what had finished is in {run}",
    ExitCode.TERMINATED: "{again}; what had finished is in {run}",
}
"""By exit code, but for verdicts that need other advice than those that share their code."""

_AFTER_PROOF = "paste the evidence into the pull request: `graphcheck report {run} --format markdown`"
_WHERE_NONE_CAN_ACT = (
    "run cells in which the fix can act, which its line above tells, or name with `--fix` those to ablate"
)


def last_line(run: Run, code: ExitCode, findings: Sequence[Finding] = ()) -> str:
    """`exit 0: pass; next: ...`. `findings` are an ablation's, which has other advice to give."""
    return f"exit {int(code)}: {MEANING[code]}; next: {_advice(run, code, findings)}"


def _advice(run: Run, code: ExitCode, findings: Sequence[Finding]) -> str:
    folder = shlex.quote(str(run.path))
    if code is ExitCode.PASS:
        return _AFTER_PROOF.format(run=folder) if findings else _after_pass(run)
    if code is ExitCode.UNPROVEN and {one for one in findings if not one.is_proof} == {Finding.CANNOT_ACT}:
        return _WHERE_NONE_CAN_ACT
    if code is ExitCode.USAGE and CONTRADICTED in run.notes:
        return "restore the folder, or run again"
    earned = (a.finished for a in run.attempts if a.finished is not None and a.finished.verdict.exit_code is code)
    first = next(earned, None)
    text = _NEXT.get(first.verdict, _NEXT[code]) if first is not None else _NEXT[code]
    return text.format(
        run=folder,
        goldens=golden_command(run.info),
        attempt=shlex.quote(str(run.attempt_dir(first.key if first is not None else ""))),
        again="run the same command again" + (" with a new --run-dir" if names_folder(run.info) else ""),
    )


def _after_pass(run: Run) -> str:
    info = run.info
    if info.fixes_off:
        if len(list(idle_fix_notes(info, run.attempts))) == len(info.fixes_off):
            return "run cells in which what was switched off can act"
        off = ", ".join(info.fixes_off)
        return f"nothing here needs {off}; whether its site was reached is told by `{ablation_command(info)}`"
    off = shlex.join([*whole_command(info), "--disable-fix", "NAME"])
    return f"switch a fix off and see what it prevents: `{off}`, names by `graphcheck list fixes`"
