"""Owns printing a run's document for people elsewhere: what is private is taken out before it gets any markup."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from rich.console import Console

from graphcheck.harness.records.run_folder import Run
from graphcheck.report.characters import legal
from graphcheck.report.document import Block, document, exit_code
from graphcheck.report.public import Cleaned, make_public, this_machine
from graphcheck.report.terminal import Terminal, print_line
from graphcheck.schema.exit_codes import MEANING, ExitCode

_BETWEEN = "\0"
"""Between the texts of a document while they are looked through: none has it, and no name is found across it."""


def publish(run: Run, console: Console, markup: Callable[[Sequence[Block]], str]) -> ExitCode:
    """Prints the document; what was taken out of it, and the exit code in words, go to standard error."""
    code, blocks = exit_code(run), document(run)
    texts = [legal(text.text) for block in blocks for row in block.rows for text in row]
    cleaned = make_public(_BETWEEN.join(texts), this_machine(), keep=_public_names(run))
    console.out(markup(_with_texts(blocks, cleaned)), highlight=False)
    aside = Terminal(stderr=True)
    removed = ", ".join(f"{kind} x {count}" for kind, count in sorted(cleaned.removed.items())) or "nothing"
    print_line(aside, f"public-content check: {removed} taken out")
    print_line(aside, f"exit {int(code)}: {MEANING[code]}")
    return code


def _with_texts(blocks: Sequence[Block], cleaned: Cleaned) -> list[Block]:
    """The same blocks with what is left of their texts."""
    texts = iter(cleaned.text.split(_BETWEEN))
    return [
        replace(block, rows=tuple(tuple(replace(text, text=next(texts)) for text in row) for row in block.rows))
        for block in blocks
    ]


def _public_names(run: Run) -> set[str]:
    """What the run calls its things, which is public whatever this machine calls its own."""
    info = run.info
    names = {"graphcheck", info.matrix_name, info.matrix.target, *info.matrix.models, *info.matrix.suites}
    names |= {*info.fixes_off, *info.environment.values()}
    names |= {fix.name for fix in info.ablation.fixes} if info.ablation is not None else set()
    for attempt in run.attempts:
        started = attempt.started
        names |= {started.key, started.attempt.cell.name, *started.settings, *map(str, started.settings.values())}
    return names
