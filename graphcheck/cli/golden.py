"""Owns the `golden` commands and their options; what they do is the library's."""

from pathlib import Path
from typing import Annotated

import typer

golden_app = typer.Typer(
    name="golden", help="Make, review and check the stored right answers.", no_args_is_help=True, rich_markup_mode=None
)

MatrixName = Annotated[
    str | None, typer.Argument(metavar="[NAME|PATH]", help="a shipped matrix, or the path of a .toml file  [default]")
]
Model = Annotated[str | None, typer.Option(metavar="DIR|NAME", help="this model in place of the matrix's")]
Select = Annotated[str | None, typer.Option("-k", metavar="EXPR", help="only what cells like `model=probe` need")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="a setting for every cell, like dtype=float16; repeatable"),
]
GoldenDir = Annotated[Path | None, typer.Option(metavar="DIR", help="folder of goldens  [default: golden]")]
Paths = Annotated[
    list[Path] | None, typer.Argument(metavar="[PATH]...", help="goldens, pending files or folders  [all pending]")
]
Matrices = Annotated[
    list[str] | None,
    typer.Option("--matrix", metavar="NAME|PATH", help="look here too, besides the shipped ones; repeatable"),
]


@golden_app.callback()
def golden_options() -> None:
    """Make, review and check the stored right answers."""


@golden_app.command("regen")
def regen(
    matrix: MatrixName = None,
    model: Model = None,
    golden_dir: GoldenDir = None,
    select: Select = None,
    set_: Set = None,
) -> None:
    """Let the reference (transformers) make the goldens that a matrix needs; changes wait for `accept`.

    With CI set in the environment, nothing is written unless a matrix or a model is named.
    """
    from graphcheck.harness.golden.pending import may_write
    from graphcheck.harness.planning.request import RunRequest
    from graphcheck.report.making import regen_and_report
    from graphcheck.report.terminal import Terminal

    request = RunRequest(
        matrix=matrix or RunRequest.matrix,
        model=model,
        golden_dir=golden_dir,
        select=select,
        settings=tuple(set_ or ()),
    )
    regen_and_report(request, Terminal(), writes=may_write(named=matrix is not None or model is not None))


@golden_app.command("calibrate")
def calibrate(
    matrix: MatrixName = None,
    model: Model = None,
    golden_dir: GoldenDir = None,
    select: Select = None,
    set_: Set = None,
    repeats: Annotated[int, typer.Option(min=1, help="runs of each cell")] = 1,
) -> None:
    """Measure the rounding noise of a known-good engine against its goldens: what may be a near tie.

    Every cell of the matrix that may round runs, all fixes on, fed with its golden's tokens. With CI set in the
    environment, nothing is written unless a matrix or a model is named.
    """
    from graphcheck.harness.golden.pending import may_write
    from graphcheck.harness.planning.request import RunRequest
    from graphcheck.report.live import calibrate_and_report
    from graphcheck.report.terminal import Terminal

    request = RunRequest(
        matrix=matrix or RunRequest.matrix,
        model=model,
        golden_dir=golden_dir,
        select=select,
        settings=tuple(set_ or ()),
    )
    writes = may_write(named=matrix is not None or model is not None)
    calibrate_and_report(request, repeats, Terminal(), writes=writes)


@golden_app.command("diff")
def diff(paths: Paths = None, golden_dir: GoldenDir = None) -> None:
    """Show what pending goldens would change: per prompt the first step, both texts and the margins."""
    from graphcheck.harness.golden.pending import find_pending
    from graphcheck.report.golden import print_diff
    from graphcheck.report.terminal import Terminal

    print_diff(find_pending(paths or (), golden_dir), Terminal())


@golden_app.command("accept")
def accept(
    paths: Paths = None,
    golden_dir: GoldenDir = None,
    hard: Annotated[bool, typer.Option("--hard", help="also changes that need a reason")] = False,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="why; kept in the golden")] = None,
    matrix: Matrices = None,
    model: Model = None,
) -> None:
    """Let pending goldens take the place of the old ones.

    If other packages made it, the engine first runs one cell against the old golden, which tells what moved.
    """
    from graphcheck.harness.golden.accept import accept as accept_pending
    from graphcheck.harness.golden.accept import checked_reason
    from graphcheck.harness.golden.check import known_matrices
    from graphcheck.harness.golden.pending import find_pending
    from graphcheck.report.golden import print_accepted
    from graphcheck.report.terminal import Terminal

    given = checked_reason(reason, is_hard=hard)
    waiting = find_pending(paths or (), golden_dir, writes=True)
    print_accepted(waiting, accept_pending(waiting, given, known_matrices(matrix or ()), model), Terminal())


@golden_app.command("reject")
def reject(paths: Paths = None, golden_dir: GoldenDir = None) -> None:
    """Throw pending goldens away."""
    from graphcheck.harness.golden.accept import reject as reject_pending
    from graphcheck.harness.golden.pending import find_pending
    from graphcheck.report.golden import print_rejected
    from graphcheck.report.terminal import Terminal

    waiting = find_pending(paths or (), golden_dir, writes=True)
    reject_pending(waiting)
    print_rejected(waiting, Terminal())


@golden_app.command("check")
def check(golden_dir: GoldenDir = None, matrix: Matrices = None) -> None:
    """Check that every golden is readable, current and used, and that every matrix has its goldens; else exit 6."""
    from graphcheck.harness.golden.check import check_goldens, known_matrices
    from graphcheck.report.golden import print_checked
    from graphcheck.report.terminal import Terminal

    raise typer.Exit(print_checked(check_goldens(golden_dir, known_matrices(matrix or ())), Terminal()))


@golden_app.command("list")
def list_(golden_dir: GoldenDir = None, matrix: Matrices = None) -> None:
    """List goldens: what they hold, what made them, which matrices use them."""
    from graphcheck.harness.golden.check import known_matrices, list_goldens
    from graphcheck.report.golden import print_listed
    from graphcheck.report.terminal import Terminal

    print_listed(list_goldens(golden_dir, known_matrices(matrix or ())), Terminal())
