"""The README against the program: commands, options, exit codes, verdicts, fixes and matrices, both ways."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
import typer

import graphcheck
from graphcheck.cli.app import app
from graphcheck.harness.catalogue import catalogue
from graphcheck.harness.files.matrix_file import load_matrix
from graphcheck.harness.planning.plan import plan_attempts
from graphcheck.report.formats import Format
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.matrix import Matrix, Policy
from graphcheck.schema.verdicts import Verdict
from graphcheck.targets.registry import load_target

README = Path(graphcheck.__file__).parents[1] / "README.md"
SPAN = re.compile(r"`([^`]+)`")
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
IMPLIED = {"--help", "--install-completion", "--show-completion"}
"""Options that click or typer add by themselves."""


@cache
def commands() -> dict[str, set[str]]:
    """Command as typed (`golden diff`; empty for the program itself) -> its options, each by its longest name."""
    found: dict[str, set[str]] = {}

    def visit(command: click.Command, name: str) -> None:
        options = {
            max(parameter.opts, key=len) for parameter in command.params if parameter.param_type_name == "option"
        }
        inner = getattr(command, "commands", {})
        if not (inner and name):
            found[name] = options - IMPLIED
        for word, one in inner.items():
            visit(one, f"{name} {word}".strip())

    visit(typer.main.get_command(app), "")
    return found


def rows(text: str, *header: str) -> Iterator[list[str]]:
    """The cells of each row of the table with this header."""
    lines = iter(text.splitlines())
    wanted = "| " + " | ".join(header) + " |"
    assert any(line == wanted for line in lines), f"the README has no table {wanted}"
    next(lines)
    for line in lines:
        if not line.startswith("|"):
            return
        yield [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def named(cell: str) -> Iterator[str]:
    """The commands that a cell names: `golden diff` in full, or `accept` after it, for one of the same group."""
    group = ""
    for span in SPAN.findall(cell):
        words = span.removeprefix("graphcheck").split()
        tries = [f"{group} {span}"] if group else []
        tries += [" ".join(words[:count]) for count in range(len(words), 0, -1)] or [""]
        name = next((name for name in tries if name in commands()), span)
        group = name.rpartition(" ")[0]
        yield name


def compared(what: str, readme: set[str], program: set[str]) -> Iterator[str]:
    yield from (f"{what} {one}: only in the README" for one in sorted(readme - program))
    yield from (f"{what} {one}: not in the README" for one in sorted(program - readme))


def differences(text: str) -> list[str]:
    """One line for each thing that README and program do not both know."""
    listed = {name for row in rows(text, "command", "what it does") for name in named(row[0])}
    pairs = {
        f"{span.split()[0]} of {name or 'graphcheck'}"
        for option, with_, _ in rows(text, "option", "with", "what it does")
        for span in SPAN.findall(option)
        for name in named(with_)
    }
    own = {f"{option} of {name or 'graphcheck'}" for name, options in commands().items() for option in options}
    codes = {
        code: set(re.findall("[A-Z]{2,}", verdicts))
        for numbers, _, verdicts in rows(text, "exit", "meaning", "verdicts")
        for code in numbers.split(", ")
    }
    told = {f"{verdict} with exit {code}" for code, verdicts in codes.items() for verdict in verdicts}
    fixes = {
        f"{SPAN.findall(name)[0]} ({shows})"
        for name, _, _, _, shows in rows(text, "fix", "promise", "off means", "acts in", "shows (tape)")
    }
    known = {
        f"{fix.name} ({', '.join(fix.signature.shows['tape'])})" for fix in load_target("bundled").describe().fixes
    }
    formats = {
        span
        for option, _, what in rows(text, "option", "with", "what it does")
        if option == "`--format NAME`"
        for span in SPAN.findall(what)
    }
    matrices = {SPAN.findall(name)[0] for name, _ in rows(text, "matrix", "what it covers")}
    return [
        *compared("command", listed, set(commands()) - {""}),
        *compared("option", pairs, own),
        *compared("exit code", set(codes), {str(int(code)) for code in ExitCode}),
        *compared("verdict", told, {f"{verdict} with exit {int(verdict.exit_code)}" for verdict in Verdict}),
        *compared("fix", fixes, known),
        *compared("format", formats, set(Format)),
        *compared("matrix", matrices, {name for name, _ in catalogue("matrices")}),
        *compared(
            "option", typed(text), typed(text) & ({option for one in commands().values() for option in one} | IMPLIED)
        ),
    ]


def typed(text: str) -> set[str]:
    """Options in what the README says to type: a span that begins with one, or with the program."""
    spans = (span for span in SPAN.findall(re.sub("```.*?```", "", text, flags=re.DOTALL)))
    return {option for span in spans if span.startswith(("-", "graphcheck ")) for option in OPTION.findall(span)}


def test_the_readme_and_the_program_know_the_same_things() -> None:
    assert differences(README.read_text(encoding="utf-8")) == []


def test_the_matrix_file_in_the_readme_is_one_and_explains_every_key(tmp_path: Path) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path / "example.toml"
    path.write_text(block, encoding="utf-8")
    loaded = load_matrix(str(path))
    planned = plan_attempts(loaded, load_target("bundled").describe())
    assert [one.attempt.cell.name for one in planned][-1] == "tp2-graph_off-shapes_exact"
    explained = {re.split(r"[] =]", line.lstrip("["))[0] for line in block.splitlines() if "  # " in line}
    assert explained == {*Matrix.model_fields, *Policy.model_fields}


def test_help_says_what_each_exit_code_means() -> None:
    shown = typer.main.get_command(app).get_help(click.Context(click.Command("graphcheck"), terminal_width=120))
    listed = re.findall(r"^ *(\d+) +\w", shown.partition("Exit codes:")[2], re.MULTILINE)
    assert listed == [str(int(code)) for code in ExitCode]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("| `graphcheck report RUN` |", "| `graphcheck replay RUN` |", "command graphcheck replay RUN: only in"),
        ("`accept`, `reject` |", "`accept` |", "command golden reject: not in"),
        ("| `--audit` |", "| `--auditing` |", "option --auditing of ablate: only in"),
        ("| `--fail-fast` | `run matrix` |", "| `--fail-fast` | `ablate` |", "option --fail-fast of ablate: only in"),
        ("| 7 | a fix", "| 9 | a fix", "exit code 7: not in"),
        ("| HANG, TIMEOUT |", "| HANG |", "verdict TIMEOUT with exit 3: not in"),
        ("| TOKENS, FLAKY |", "| TOKENS |", "verdict FLAKY with exit 1: not in"),
        ("| `pad-clear` |", "| `pad-clean` |", "fix pad-clean (TOKENS): only in"),
        ("| tp 2, 4 | HANG |", "| tp 2, 4 | TOKENS |", "fix allreduce-sync (HANG): not in"),
        ("| `gpu` |", "| `gpus` |", "matrix gpu: not in"),
        ("`junit`: a file for a CI server", "`xml`: a file for a CI server", "format junit: not in"),
        ("`graphcheck doctor", "`graphcheck doctor --fast", "option --fast: only in"),
    ],
)
def test_a_planted_difference_is_found(old: str, new: str, expected: str) -> None:
    text = README.read_text(encoding="utf-8")
    assert old in text
    assert any(line.startswith(expected) for line in differences(text.replace(old, new))), expected
