"""Owns the `provenance` command and its options, which runs take too; what they do is the library's."""

from typing import Annotated

import typer

Base = Annotated[str | None, typer.Option(metavar="REV", help="exit 2 unless the code descends from this revision")]
Allow = Annotated[
    list[str] | None,
    typer.Option(metavar="GLOB", help="exit 2 if a file outside changed since (git's globs: `src/**`); repeatable"),
]


def provenance(base: Base = None, allow: Allow = None) -> None:
    """Show where the code comes from: commits, uncommitted changes. Runs nothing; every run records the same."""
    from graphcheck.harness.records.provenance import provenance as find_provenance
    from graphcheck.report.provenance import print_provenance
    from graphcheck.report.terminal import Terminal

    print_provenance(find_provenance(base, tuple(allow or ())), Terminal())
