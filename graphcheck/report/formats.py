"""Owns the names of report formats, and where each is found when it is used.

A format is a function that takes a run and the console to print it on, and returns the run's exit code.
"""

import importlib
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from rich.console import Console

    from graphcheck.harness.records.run_folder import Run
    from graphcheck.schema.exit_codes import ExitCode


class Format(StrEnum):
    """What `--format` takes."""

    CONSOLE = "console"
    MARKDOWN = "markdown"
    HTML = "html"
    JUNIT = "junit"
    JSON = "json"


_FUNCTIONS = {
    Format.CONSOLE: "graphcheck.report.show:on_console",
    Format.MARKDOWN: "graphcheck.report.markdown:print_markdown",
    Format.HTML: "graphcheck.report.html:print_html",
    Format.JUNIT: "graphcheck.report.junit:print_junit",
    Format.JSON: "graphcheck.report.json:print_json",
}


def load_format(name: Format) -> "Callable[[Run, Console], ExitCode]":
    """The function of a format; what it needs is imported now."""
    module, _, attribute = _FUNCTIONS[name].partition(":")
    return cast("Callable[[Run, Console], ExitCode]", getattr(importlib.import_module(module), attribute))
