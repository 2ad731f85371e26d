"""`--format html`: one page that needs nothing else, says what the block for a pull request says, in colour."""

import io
import re
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from graphcheck.harness.records.run_folder import Run, load_run
from graphcheck.report.document import document
from graphcheck.report.html import as_html, print_html
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.run import RUN_FORMAT
from graphcheck.schema.verdicts import Verdict
from tests.fake_ablation import ablate_in, scripted
from tests.fake_world import FakeWorld
from tests.in_process import make_call
from tests.record_run import FOLDERS

VOID = {"meta"}
TABLE = {"table", "thead", "tr", "th", "td"}
ALLOWED = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "pre", "ul", "li", "span", *TABLE}


@dataclass
class Page(HTMLParser):
    """A page as a browser reads it: `shown` are (path of tags, class, text)."""

    source: str
    open: list[tuple[str, str]] = field(default_factory=list)
    shown: list[tuple[str, str, str]] = field(default_factory=list)
    attributes: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.source)
        self.close()
        assert self.open == [], "every tag is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED, tag
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append((tag, dict(attrs).get("class") or ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.shown.append((" ".join(tag for tag, _ in self.open), self.open[-1][1], data))

    def texts(self, tag: str) -> list[str]:
        return [text for path, _, text in self.shown if tag in path.split()]

    def colour(self, text: str) -> str:
        """The class of the one place that shows just this."""
        (colour,) = {colour for path, colour, shown in self.shown if shown == text and "title" not in path.split()}
        return colour


def page(run: Run) -> Page:
    return Page(as_html(document(run)))


@pytest.mark.parametrize(
    "folder", sorted(FOLDERS.glob("format*/*")), ids=lambda path: f"{path.parent.name}-{path.name}"
)
def test_a_page_of_any_format_shows_all_that_the_document_holds_in_its_order(folder: Path) -> None:
    run = load_run(folder)
    texts = [text.text for block in document(run) for row in block.rows for text in row if text.text.strip()]
    shown = [text for path, _, text in page(run).shown if not {"title", "style"} & set(path.split())]
    assert re.sub(r"\s+", "", "".join(shown)) == re.sub(r"\s+", "", "".join(texts))


def test_every_cell_stands_in_the_grid_in_the_colour_of_its_verdict(fake_world: FakeWorld) -> None:
    run = load_run(FOLDERS / f"format{RUN_FORMAT}" / "matrix")
    shown = page(run)
    cells = shown.texts("td")
    for attempt in run.attempts:
        assert attempt.finished is not None
        where = cells.index(str(attempt.started.attempt.cell.axes["fault"]))
        verdict, key = attempt.finished.verdict, attempt.started.key
        colour = {"PASS": "green", "UNWITNESSED": "cyan"}.get(verdict, "bold red")
        assert cells[where + 1].startswith(f"{verdict} ")
        assert shown.colour(cells[where + 1]) == colour
        if verdict is not Verdict.PASS:
            told = f"{key}  {verdict}: "
            assert [colour for _, colour, text in shown.shown if text.startswith(told)] == [colour]
    skipped, _ = fake_world.run(fake_world.matrix(tp=[1, 2], settings={"device": "cuda"}), num_devices=1)
    assert page(skipped).colour("SKIPPED") == "yellow"


def test_the_title_is_green_only_if_the_exit_code_is_0(fake_world: FakeWorld) -> None:
    fine, _ = fake_world.run(fake_world.matrix(graph=["on"]))
    assert (page(fine).shown[2][:2], page(fine).texts("title")) == (("html body h1", "green"), page(fine).texts("h1"))
    lacking, code = fake_world.run(fake_world.matrix(graph=["off"]), require_backend="fake")
    assert code is ExitCode.VACUOUS
    assert page(lacking).shown[2][:2] == ("html body h1", "bold red"), "though every cell is green"


def test_an_ablation_shows_findings_in_colour_and_effects_in_none(fake_world: FakeWorld) -> None:
    fixes = scripted("hang", Verdict.HANG, name="joined"), scripted("none", Verdict.TOKENS, name="idle")
    shown = page(ablate_in(fake_world, fake_world.matrix(tp=[2], graph=["on"]), *fixes).run)
    assert (shown.colour("NECESSARY"), shown.colour("REDUNDANT")) == ("green", "bold red")
    assert shown.colour("HANG in decode, step 5") == "", "it is what was looked for"
    assert {"Ablation: one fix off at a time", "The hang"} <= set(shown.texts("h2"))


def test_a_page_needs_nothing_else_and_runs_nothing() -> None:
    source = as_html(document(load_run(FOLDERS / f"format{RUN_FORMAT}" / "matrix")))
    assert Page(source).attributes == {"lang", "charset", "name", "content", "class", "scope"}
    assert not re.search(r"url\(|@import|https?:|//", source)
    assert "color-scheme: light dark" in source


def test_nothing_that_a_run_says_becomes_markup(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["on"], fault=["raise"]))
    first = run.attempts[0]
    assert first.finished is not None
    hostile = "</pre><script>alert('x')</script> & &lt; \"q\" naïve 日本"
    spoilt = replace(first, finished=first.finished.model_copy(update={"reason": hostile}))
    info = run.info.model_copy(update={"matrix_name": "<b onclick=x>m"})
    source = as_html(document(replace(run, info=info, attempts=(spoilt,), notes=("<img src=x>",))))
    assert source.isascii()
    shown = Page(source)
    assert any(hostile in text for text in shown.texts("pre"))
    assert shown.texts("p")[0] == "<img src=x>"
    assert any("matrix <b onclick=x>m" in text for text in shown.texts("td"))


def test_control_characters_are_shown_as_escapes_and_move_no_text(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["on"]))
    console = Console(file=io.StringIO(), width=80)
    print_html(replace(run, notes=("a\0b\x1b[31m",)), console)
    assert isinstance(console.file, io.StringIO)
    shown = Page(console.file.getvalue())
    assert shown.texts("p")[0] == "a\\x00b\\x1b[31m"
    assert shown.texts("h1") == page(run).texts("h1")


def test_standard_output_is_the_page_alone_without_what_is_private(
    fake_world: FakeWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PLANTED_TOKEN", "s3cr3t&value")
    monkeypatch.setenv("LOGNAME", "planted-user")
    call = make_call(monkeypatch, capsys)
    matrix = str(fake_world.matrix(graph=["on"], fault=["none", "drift"]))
    kept = ("--set", "buckets=1,2,4", "--golden-dir", "golden/s3cr3t&value/../../home/planted-user/../../golden")
    Path("golden/s3cr3t&value").mkdir()
    Path("home/planted-user").mkdir(parents=True)
    first = call("run", "matrix", matrix, "--run-dir", "out", *kept, "--format", "html")
    assert first.code == 1, first.err
    assert first.out.startswith("<!doctype html>\n")
    command = next(text for text in Page(first.out).texts("pre") if "--golden-dir" in text)
    assert "s3cr3t" not in first.out
    assert "planted-user" not in first.out
    assert "golden/$PLANTED_TOKEN/../../home/<user>/../../golden" in command
    assert "graph_on-fault_drift  TOKENS" in first.err
    aside = first.err.splitlines()[-2:]
    assert aside[0].startswith("public-content check: environment value x 1")
    assert aside[1].startswith("exit 1: ")
    again = call("report", "out", "--format", "html")
    assert (again.code, again.out) == (1, first.out)
