"""Owns how a run's document looks in Markdown, ready to paste into a pull request."""

import re
from collections.abc import Sequence

from rich.console import Console

from graphcheck.harness.records.run_folder import Run
from graphcheck.report.document import Block, Kind, Text, document
from graphcheck.report.publish import publish
from graphcheck.schema.exit_codes import ExitCode


def print_markdown(run: Run, console: Console) -> ExitCode:
    """Prints the document without what is private."""
    return publish(run, console, as_markdown)


def markdown(run: Run) -> str:
    """The document as it is: a pure function of the run folder, not yet checked for private content.

    Raises:
        GoldenCorrupt: the run's copy of a golden is missing or damaged.
    """
    return as_markdown(document(run))


def as_markdown(blocks: Sequence[Block]) -> str:
    """A document in Markdown, its blocks set apart by an empty line."""
    return "\n\n".join(map(_block, blocks))


def _block(block: Block) -> str:
    lines = [row[0].text for row in block.rows]
    match block.kind:
        case Kind.WARNING:
            return f"> {lines[0]}"
        case Kind.TITLE:
            return f"## {lines[0]}"
        case Kind.HEADING:
            return f"### {lines[0]}"
        case Kind.TABLE:
            return _table(block.rows)
        case Kind.LINES:
            return _fenced(lines)
        case Kind.LIST:
            return "\n".join(f"- {line}" for line in lines)
        case Kind.PARAGRAPH:
            return lines[0]


def _table(rows: Sequence[Sequence[Text]]) -> str:
    head, *body = [[_escaped(cell.text) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *body))


def _escaped(text: str) -> str:
    """A table cell: plain where nothing in it means anything to Markdown, else as code, so that `#22` stays `#22`."""
    if re.fullmatch(r"[\w ,.;:%()/=?+-]*", text):
        return text
    return "`" + text.replace("`", "'").replace("|", "\\|").replace("\n", " ") + "`"


def _fenced(lines: Sequence[str]) -> str:
    """Lines as they are, inside a fence that none of them can close."""
    text = "\n".join(lines)
    fence = "`" * max([3, *(len(ticks) + 1 for ticks in re.findall("`+", text))])
    return f"{fence}text\n{text}\n{fence}"
