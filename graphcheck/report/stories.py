"""Owns how the stories of attempts are printed: which share one, and the commands that repeat them below."""

from collections.abc import Sequence

from rich.console import Console

from graphcheck.report import words
from graphcheck.report.explain import explain
from graphcheck.report.rerun import rerun_lines
from graphcheck.report.terminal import print_line, style_of
from graphcheck.schema.attempt import Attempt
from graphcheck.schema.run import RecordedAttempt, RunInfo
from graphcheck.schema.verdicts import Verdict


def print_stories(info: RunInfo, attempts: Sequence[RecordedAttempt], console: Console) -> None:
    """For each that is no plain PASS `KEYS  VERDICT: reason`, and the evidence below; those that say the same share."""
    stories: dict[tuple[Verdict | None, tuple[str, ...]], list[Attempt]] = {}
    for attempt in attempts:
        verdict = attempt.finished.verdict if attempt.finished else None
        stories.setdefault((verdict, tuple(explain(attempt))), []).append(attempt.started.attempt)
    for (verdict, lines), sharing in stories.items():
        keys = [attempt.key for attempt in sharing]
        for number, line in enumerate(lines):
            if number == 0:
                print_line(console, f"{words.names(keys)}  {verdict or words.UNFINISHED}: {line}", style_of(verdict))
            else:
                print_line(console, f"  {line}")
        for line in rerun_lines(info, verdict, sharing):
            print_line(console, f"  {line}")
