"""Owns how a run's document looks in a browser: one page that needs nothing else, no script either."""

from collections.abc import Sequence
from html import escape

from rich.console import Console

from graphcheck.harness.records.run_folder import Run
from graphcheck.report.document import Block, Kind, Text
from graphcheck.report.publish import publish
from graphcheck.schema.exit_codes import ExitCode

# The colours of a terminal, each dark enough on white and light enough on black to be read.
_STYLE = """
:root { color-scheme: light dark; --line: #d0d0d0; --soft: #f5f5f5;
  --green: #18794e; --cyan: #0b7285; --yellow: #8a6100; --red: #c4210e }
@media (prefers-color-scheme: dark) { :root { --line: #444; --soft: #222;
  --green: #5fd38d; --cyan: #5ccfe6; --yellow: #e5c04b; --red: #ff7a6b } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.3rem; border-left: .4rem solid; padding-left: .7rem } h2 { font-size: 1.1rem; margin-top: 2rem }
.warning { border: 1px solid var(--yellow); padding: .5rem .8rem }
table { display: block; overflow-x: auto; border-collapse: collapse; margin: 1rem 0 }
th, td { border: 1px solid var(--line); padding: .3rem .7rem; text-align: left; vertical-align: top }
thead th, pre { background: var(--soft) }
td { overflow-wrap: anywhere; min-width: 6rem }
pre { padding: .8rem; font-size: 13px; white-space: pre-wrap; overflow-wrap: anywhere }
.green { color: var(--green) } .cyan { color: var(--cyan) } .yellow { color: var(--yellow) } .red { color: var(--red) }
.bold { font-weight: bold }
"""


def print_html(run: Run, console: Console) -> ExitCode:
    """Prints the page without what is private."""
    return publish(run, console, as_html)


def as_html(blocks: Sequence[Block]) -> str:
    """A document as a page, in ASCII, so that it is the same in whatever encoding it is printed."""
    title = next(block.rows[0][0].text for block in blocks if block.kind is Kind.TITLE)
    page = [
        "<!doctype html>",
        '<html lang="en">',
        '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style></head>",
        "<body>",
        *map(_block, blocks),
        "</body>",
        "</html>",
    ]
    return "\n".join(page).encode("ascii", "xmlcharrefreplace").decode("ascii")


def _block(block: Block) -> str:
    lines = [row[0] for row in block.rows]
    match block.kind:
        case Kind.WARNING:
            return f'<p class="warning">{_span(lines[0])}</p>'
        case Kind.TITLE:
            return f"<h1{_class(lines[0])}>{escape(lines[0].text)}</h1>"
        case Kind.HEADING:
            return f"<h2>{_span(lines[0])}</h2>"
        case Kind.TABLE:
            return _table(block.rows)
        case Kind.LINES:
            return "<pre>" + "\n".join(map(_span, lines)) + "</pre>"
        case Kind.LIST:
            return f"<ul>{''.join(f'<li>{_span(line)}</li>' for line in lines)}</ul>"
        case Kind.PARAGRAPH:
            return f"<p>{_span(lines[0])}</p>"


def _table(rows: Sequence[Sequence[Text]]) -> str:
    """The first column names its row."""
    head, *body = rows
    above = "".join(f'<th scope="col">{escape(cell.text)}</th>' for cell in head)
    lines = [f"<thead><tr>{above}</tr></thead>"] if any(cell.text for cell in head) else []
    for first, *others in body:
        cells = "".join(f"<td{_class(cell)}>{escape(cell.text)}</td>" for cell in others)
        lines.append(f'<tr><th scope="row"{_class(first)}>{escape(first.text)}</th>{cells}</tr>')
    return "\n".join(["<table>", *lines, "</table>"])


def _span(text: Text) -> str:
    return f"<span{_class(text)}>{escape(text.text)}</span>" if text.style else escape(text.text)


def _class(text: Text) -> str:
    return f' class="{text.style}"' if text.style else ""
