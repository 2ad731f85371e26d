"""Owns the command line's commands and options; what they do is the library's."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import graphcheck
from graphcheck.cli.complete import names_of
from graphcheck.cli.golden import golden_app
from graphcheck.cli.provenance import Allow, Base, provenance
from graphcheck.report.formats import Format
from graphcheck.schema.exit_codes import MEANING

app = typer.Typer(
    name="graphcheck",
    help="Proves that a decode engine gives the same tokens with CUDA graphs on or off, on 1, 2 or 4 ranks.",
    epilog="\b\nExit codes:\n" + "\n".join(f"  {int(code):3}  {meaning}" for code, meaning in MEANING.items()),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
run_app = typer.Typer(
    name="run", help="Run something, record it in a run folder, report it.", no_args_is_help=True, rich_markup_mode=None
)
models_app = typer.Typer(
    name="models", help="Models that do not come with graphcheck.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(run_app)
app.add_typer(golden_app)
app.add_typer(models_app)

Matrix = Annotated[
    str,
    typer.Argument(
        metavar="[NAME|PATH]",
        help="a shipped matrix, or the path of a .toml file",
        autocompletion=names_of("matrices"),
    ),
]
Model = Annotated[
    str | None,
    typer.Option(metavar="DIR|NAME", help="run this model in place of the matrix's", autocompletion=names_of("models")),
]
Select = Annotated[str | None, typer.Option("-k", metavar="EXPR", help="only cells like `tp=2 and graph=on`")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="a setting for every cell (see `list settings`); repeatable"),
]
Audit = Annotated[bool, typer.Option("--audit", help="check the replay contract around every replay, capture twice")]
RunDir = Annotated[
    Path | None, typer.Option(metavar="DIR", help="new or empty folder for the records  [default: runs/TIME]")
]
GoldenDir = Annotated[Path | None, typer.Option(metavar="DIR", help="folder of goldens  [default: golden]")]
ReportFormat = Annotated[
    Format,
    typer.Option(
        "--format",
        help="markdown is for a pull request, html for a browser, junit for a CI server, json for a program: what "
        "else is said goes to standard error",
    ),
]
List = Annotated[bool, typer.Option("--list", help="only show what would run; start nothing")]
RequireBackend = Annotated[
    str | None, typer.Option(metavar="NAME", help="exit 5 unless green cells replayed graphs on it (cuda, tape)")
]
ShareGpus = Annotated[
    bool, typer.Option("--share-gpus", help="cells with more ranks than GPUs run too, their ranks taking turns")
]
AllowSkipped = Annotated[bool, typer.Option("--allow-skipped", help="skipped cells do not spoil the run")]


class Kind(StrEnum):
    """What `graphcheck list` can list."""

    MATRICES = "matrices"
    SUITES = "suites"
    MODELS = "models"
    TARGETS = "targets"
    FIXES = "fixes"
    SETTINGS = "settings"


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"graphcheck {graphcheck.__version__}")
        raise typer.Exit


@app.callback()
def graphcheck_options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Proves that a decode engine gives the same tokens with CUDA graphs on or off, on 1, 2 or 4 ranks."""


@run_app.callback()
def run_options() -> None:
    """Run something, record it in a run folder, report it."""


@run_app.command("matrix")
def run_matrix(
    matrix: Matrix = "default",
    model: Model = None,
    golden_dir: GoldenDir = None,
    run_dir: RunDir = None,
    select: Select = None,
    disable_fix: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="switch a fix off; repeatable", autocompletion=names_of("fixes")),
    ] = None,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="no stop ids; each prompt ends at its golden's token count")
    ] = False,
    lanes: Annotated[int | None, typer.Option(min=1, help="sequences decoded at once")] = None,
    set_: Set = None,
    audit: Audit = False,
    share_gpus: ShareGpus = False,
    allow_skipped: AllowSkipped = False,
    repeats: Annotated[
        int, typer.Option(min=1, help="run each cell this often; one that disagrees with itself is FLAKY")
    ] = 1,
    require_backend: RequireBackend = None,
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="stop after the first red cell; the others stay not run")
    ] = False,
    list_only: List = False,
    base: Base = None,
    allow: Allow = None,
    format_: ReportFormat = Format.CONSOLE,
) -> None:
    """Run every cell of a matrix and compare each prompt with its golden."""
    from graphcheck.harness.planning.request import RunRequest
    from graphcheck.report.listing import list_run
    from graphcheck.report.live import run_and_report
    from graphcheck.report.terminal import Terminal

    request = RunRequest(
        matrix=matrix,
        model=model,
        golden_dir=golden_dir,
        run_dir=run_dir,
        fixes_off=tuple(disable_fix or ()),
        ignore_eos=ignore_eos,
        lanes=lanes,
        settings=(*(set_ or ()), *(("audit=on",) if audit else ())),
        share_gpus=share_gpus,
        allow_skipped=allow_skipped,
        require_backend=require_backend,
        select=select,
        repeats=repeats,
        fail_fast=fail_fast,
        base=base,
        allow=tuple(allow or ()),
        command=("graphcheck", *sys.argv[1:]),
    )
    if list_only:
        list_run(request, Terminal(), format_)
        return
    raise typer.Exit(run_and_report(request, Terminal(), format_))


@app.command("ablate")
def ablate(
    matrix: Matrix = "default",
    model: Model = None,
    golden_dir: GoldenDir = None,
    run_dir: RunDir = None,
    select: Select = None,
    fix: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="ablate this fix; repeatable  [all]", autocompletion=names_of("fixes")),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="trials of each fix in each cell")] = 1,
    expect: Annotated[
        list[str] | None, typer.Option(metavar="VERDICT", help="only this verdict counts (HANG, ...); repeatable")
    ] = None,
    delay: Annotated[
        list[str] | None, typer.Option(metavar="rank=R,site=S,ms=T", help="run again with this rank late; repeatable")
    ] = None,
    set_: Set = None,
    audit: Audit = False,
    share_gpus: ShareGpus = False,
    allow_skipped: AllowSkipped = False,
    require_backend: RequireBackend = None,
    list_only: List = False,
    base: Base = None,
    allow: Allow = None,
    format_: ReportFormat = Format.CONSOLE,
) -> None:
    """Switch one fix off at a time: see the hang or the drift, and which fixes are proven necessary."""
    from graphcheck.harness.planning.request import RunRequest
    from graphcheck.harness.running.ablate import AblateRequest
    from graphcheck.report.listing import list_ablation
    from graphcheck.report.live import ablate_and_report
    from graphcheck.report.terminal import Terminal

    run = RunRequest(
        matrix=matrix,
        model=model,
        golden_dir=golden_dir,
        run_dir=run_dir,
        select=select,
        share_gpus=share_gpus,
        allow_skipped=allow_skipped,
        require_backend=require_backend,
        settings=(*(set_ or ()), *(("audit=on",) if audit else ())),
        base=base,
        allow=tuple(allow or ()),
        command=("graphcheck", *sys.argv[1:]),
    )
    request = AblateRequest(run, tuple(fix or ()), repeats, tuple(expect or ()), tuple(delay or ()))
    if list_only:
        list_ablation(request, Terminal(), format_)
        return
    raise typer.Exit(ablate_and_report(request, Terminal(), format_))


@app.command("report")
def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a run")],
    format_: ReportFormat = Format.CONSOLE,
) -> None:
    """Show a recorded run again; the exit code is the run's."""
    from graphcheck.report.show import show
    from graphcheck.report.terminal import Terminal

    raise typer.Exit(show(run, Terminal(), format_))


@app.command("doctor")
def doctor(
    matrix: Annotated[
        str | None, typer.Argument(metavar="[NAME|PATH]", help="look at this matrix, cell by cell  [every shipped one]")
    ] = None,
) -> None:
    """Show this machine, which cells of a matrix it can run, and why not the others. Runs nothing."""
    from graphcheck.harness.doctor import diagnose
    from graphcheck.harness.machine.inventory import take_inventory
    from graphcheck.report.doctor import print_diagnosis
    from graphcheck.report.terminal import Terminal

    raise typer.Exit(print_diagnosis(diagnose(matrix, take_inventory()), Terminal()))


app.command("provenance")(provenance)


@models_app.callback()
def models_options() -> None:
    """Models that do not come with graphcheck."""


@models_app.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="see `graphcheck list models`")],
    models_dir: Annotated[Path, typer.Option(metavar="DIR", help="folder to put it into")] = Path("models"),
) -> None:
    """Make a model from an installed package that ships its weights."""
    from graphcheck.harness.add_model import add_model

    typer.echo(add_model(name, models_dir))


@app.command("list")
def list_(kind: Annotated[Kind, typer.Argument(help="what to list")]) -> None:
    """List what there is to choose from."""
    from graphcheck.harness.catalogue import catalogue

    for name, description in catalogue(kind):
        typer.echo(f"{name:20} {description}".rstrip())
