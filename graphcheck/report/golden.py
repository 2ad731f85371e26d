"""Owns how goldens are shown: what was made, what is pending, what differs, and what is wrong with them."""

import shlex
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from graphcheck.harness.files.golden_store import DEFAULT_GOLDEN_DIR
from graphcheck.harness.golden.calibrate import Calibrated
from graphcheck.harness.golden.check import Checked, Listed
from graphcheck.harness.golden.moved import Movement
from graphcheck.harness.golden.pending import Filed, Pending, State
from graphcheck.harness.golden.review import ChangeKind, PromptChange, Review, version_changes
from graphcheck.harness.records.run_folder import Run
from graphcheck.report.terminal import RED, print_line
from graphcheck.report.words import counted
from graphcheck.schema.errors import GoldenError
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.golden import Calibration, Golden, GoldenPrompt
from graphcheck.schema.verdicts import Verdict


def print_filed(filed: Sequence[Filed], console: Console) -> None:
    """One line a golden, and what to do if any is pending."""
    for one in filed:
        print_line(console, f"{one.path}: {_contents(one.review.new)}; {_state(one)}")
    folders = list(dict.fromkeys(one.path.parents[1] for one in filed if one.state is State.PENDING))
    if folders:
        where = "" if folders == [DEFAULT_GOLDEN_DIR] else f" {shlex.join(map(str, folders))}"
        print_line(
            console, f"next: `graphcheck golden diff{where}`, then `graphcheck golden accept{where}` or `reject`"
        )


def _state(filed: Filed) -> str:
    if filed.state is State.SAME:
        return "same"
    first = filed.state is State.FIRST
    text = "the first, nothing to review" if first else f"pending, {summary(filed.review)}"
    return text if filed.path.is_file() else f"{text}; NOT WRITTEN: in CI name a matrix or a model"


def print_calibrated(calibrated: Sequence[Calibrated], console: Console) -> None:
    """One line for each golden and each arithmetic that was measured."""
    for one in calibrated:
        for calibration in one.calibrations:
            print_line(console, f"{one.path}: {describe_calibration(calibration)}")
        if not one.path.is_file():
            print_line(console, f"{one.path}: NOT WRITTEN: in CI name a matrix or a model", RED)


def describe_calibration(calibration: Calibration) -> str:
    """`bound 11.1 ULP, 36 near ties in 632 steps, 57 per 1,000 (device=cpu, numerics=fast)`."""
    rate = 1000 * calibration.num_near_ties / calibration.num_steps
    arithmetic = ", ".join(f"{axis}={value}" for axis, value in calibration.made_for.items())
    counts = f"{counted(calibration.num_near_ties, 'near tie')} in {counted(calibration.num_steps, 'step')}"
    return f"bound {calibration.bound:g} ULP, {counts}, {rate:.3g} per 1,000 ({arithmetic})"


def print_diff(waiting: Sequence[Pending], console: Console) -> None:
    """Each pending golden against the old one: prompt by prompt both texts side by side, margins at the first step."""
    if not waiting:
        print_line(console, "nothing is pending")
    for one in waiting:
        print_line(console, f"{one.path}: {summary(one.review)}")
        different = [change for change in one.review.changes if change.kind is not ChangeKind.SAME]
        if different:
            console.print(_table(different))


def print_accepted(waiting: Sequence[Pending], moved: Sequence[Movement | None], console: Console) -> None:
    """What was accepted, and what moved with the environment."""
    for one, movement in zip(waiting, moved, strict=True):
        line = f"{one.golden_path}: accepted, {summary(one.review)}"
        print_line(console, line + (f"; {movement}" if movement is not None else ""))
    if not waiting:
        print_line(console, "nothing is pending")


def print_rejected(waiting: Sequence[Pending], console: Console) -> None:
    """What was thrown away."""
    for one in waiting:
        print_line(console, f"{one.path}: rejected, {summary(one.review)}")
    if not waiting:
        print_line(console, "nothing is pending")


def print_checked(checked: Checked, console: Console) -> ExitCode:
    """Each problem in a line; returns the exit code that they earn."""
    for problem in checked.problems:
        print_line(console, problem, RED)
    for unchecked in checked.unchecked:
        print_line(console, f"not checked: {unchecked}")
    found = counted(len(checked.problems), "problem") if checked.problems else "in order"
    what = f"{counted(checked.num_files, 'golden')}, {counted(checked.num_uses, 'use')} by matrices"
    print_line(console, f"{what}: {found}")
    return ExitCode.GOLDEN if checked.problems else ExitCode.PASS


def print_listed(listed: Sequence[Listed], console: Console) -> None:
    """One line a golden: contents, versions and date, and who uses it."""
    for one in listed:
        if one.golden is None:
            print_line(console, str(one.problem), RED)
            continue
        header = one.golden.header
        versions = ", ".join(f"{package} {version}" for package, version in header.versions.items())
        used = f"used by {', '.join(one.matrices)}" if one.matrices else "used by no known matrix"
        line = f"{one.path}: {_contents(one.golden)}; {header.dtype}; {versions}; {header.made_on}; {used}"
        print_line(console, line + ("; a change is pending" if one.is_pending else ""))
        for calibration in one.calibrations:
            print_line(console, f"  calibrated: {describe_calibration(calibration)}")


def summary(against: Review) -> str:
    """`HARD: 10 same, 2 HARD; differs in versions.torch 2.11.0 -> 2.13.0`."""
    if against.unreadable:
        return f"{ChangeKind.HARD}: the old golden cannot be compared with ({against.unreadable})"
    counts = Counter(change.kind for change in against.changes)
    line = f"{against.kind}: " + ", ".join(f"{counts[kind]} {kind}" for kind in ChangeKind if counts[kind])
    return line + (f"; differs in {', '.join(against.header)}" if against.header else "")


def environment_notes(run: Run) -> list[str]:
    """Beside each difference: by which other packages than this run has its golden was made. Empty for a green run."""
    notes: dict[str, None] = {}
    for attempt in run.attempts:
        if attempt.finished is None or attempt.finished.verdict not in (Verdict.TOKENS, Verdict.FLAKY):
            continue
        started = attempt.started
        try:
            versions = run.golden(started).header.versions
        except GoldenError:
            continue  # the run's copy is gone, and what is said of its cells does not need it
        if changes := version_changes(versions, dict(run.info.environment)):
            now = ", ".join(change.removeprefix("versions.") for change in changes)
            note = f"golden {started.model}/{started.suite} {started.dtype} was made by other packages than ran: {now}"
            notes[note] = None
    return list(notes)


def _contents(golden: Golden) -> str:
    num_tokens = sum(len(prompt.ids) for prompt in golden.prompts)
    text = f"{counted(len(golden.prompts), 'prompt')}, {counted(num_tokens, 'token')}"
    quorum = golden.header.quorum
    return text + (f", {quorum.num_soft} soft, noise {quorum.noise:.2g}" if quorum else ", no quorum")


def _table(changes: Sequence[PromptChange]) -> Table:
    table = Table("prompt", "change", "step", "margin old", "margin new", "old text", "new text")
    for change in changes:
        old, new, step = change.old, change.new, change.step
        same_tokens = change.kind is ChangeKind.MARGINS
        table.add_row(
            Text(change.prompt),
            Text(change.kind, style=RED if change.kind is ChangeKind.HARD else ""),
            "" if step is None else str(step),
            _margin(old, step),
            _margin(new, step),
            Text(_text(old)),
            Text("the same" if same_tokens else _text(new)),
        )
    return table


def _margin(prompt: GoldenPrompt | None, step: int | None) -> str:
    if prompt is None or step is None or step >= len(prompt.steps):
        return ""
    return f"{prompt.steps[step].margin:.4g}" + (" soft" if prompt.steps[step].soft else "")


def _text(prompt: GoldenPrompt | None) -> str:
    """The answer as text; as ids where the model has no tokenizer."""
    if prompt is None:
        return "-"
    return prompt.text or " ".join(map(str, prompt.ids))
