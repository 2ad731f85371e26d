"""Owns the plan: which attempts a matrix asks of a target, in which order, with which settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product

from graphcheck.harness.files.matrix_file import LoadedMatrix
from graphcheck.harness.files.model_folder import ModelFolder, find_model
from graphcheck.harness.files.suite_file import LoadedSuite, load_suite
from graphcheck.schema.attempt import Attempt, Cell
from graphcheck.schema.base import AxisValue
from graphcheck.schema.capabilities import AxisSpec, Capabilities
from graphcheck.schema.errors import UsageError


@dataclass(frozen=True)
class Overrides:
    """What the command line changes about a matrix."""

    model: ModelFolder | None = None
    settings: Mapping[str, AxisValue] = field(default_factory=dict)
    fixes_off: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlannedAttempt:
    """One attempt with all that it needs: `settings` holds every axis of the target, the cell's own included.

    `typed` are those that the command line gives.
    """

    attempt: Attempt
    model: ModelFolder
    suite: LoadedSuite
    settings: dict[str, AxisValue]
    typed: Mapping[str, AxisValue] = field(default_factory=dict)

    @property
    def asked(self) -> Mapping[str, AxisValue]:
        """The settings that were asked for by name, as an axis or on the command line: nothing may change them."""
        return {**self.typed, **self.attempt.cell.axes}

    @property
    def dtype(self) -> str:
        """What the weights are rounded to, which decides the golden; float32 for a target that cannot say."""
        return str(self.settings.get("dtype", "float32"))


def plan_attempts(
    loaded: LoadedMatrix, capabilities: Capabilities, overrides: Overrides | None = None
) -> list[PlannedAttempt]:
    """Every attempt of a matrix, the first axis outermost; `model` and `suite` are axes only where there are several.

    Extra cells follow the others. An axis that only they name is an axis of every cell.

    Raises:
        MatrixError: the matrix names an axis, setting or value that the target does not have.
        UsageError: an override names a fix, setting or value that the target or the matrix does not have.
        ModelError, SuiteError: a model or suite of the matrix cannot be used.
    """
    overrides = overrides or Overrides()
    _check_matrix(loaded, capabilities)
    _check_overrides(loaded, capabilities, overrides)
    models = _models(loaded, overrides)
    suites = {name: load_suite(name, loaded.path) for name in loaded.matrix.suites}
    defaults = {axis.name: axis.default for axis in capabilities.axes if axis.default is not None}
    shared = defaults | loaded.matrix.settings | dict(overrides.settings)
    cells = _cells(loaded, shared)
    attempts = []
    for model, suite in product(models, suites):
        several: dict[str, AxisValue] = {"model": model} if len(models) > 1 else {}
        several |= {"suite": suite} if len(suites) > 1 else {}
        attempts += [
            PlannedAttempt(
                attempt=Attempt(cell=Cell(axes=several | cell), fixes_off=overrides.fixes_off),
                model=models[model],
                suite=suites[suite],
                settings=shared | cell,
                typed=overrides.settings,
            )
            for cell in cells
        ]
    return attempts


def _cells(loaded: LoadedMatrix, shared: dict[str, AxisValue]) -> list[dict[str, AxisValue]]:
    """The cells of one model and suite: the product of the axes, then the extra ones, all with the same axes."""
    matrix = loaded.matrix
    regular = [dict(zip(matrix.axes, values, strict=True)) for values in product(*matrix.axes.values())]
    cells = [{name: (shared | cell)[name] for name in matrix.axis_names} for cell in (*regular, *matrix.extra_cells)]
    for number, cell in enumerate(cells[len(regular) :]):
        if cell in cells[: len(regular) + number]:
            raise loaded.file.wrong(("extra_cells", number), "the matrix has this cell already", "leave it out")
    return cells


def _models(loaded: LoadedMatrix, overrides: Overrides) -> dict[str, ModelFolder]:
    if overrides.model is not None:
        return {overrides.model.name: overrides.model}
    models: dict[str, ModelFolder] = {}
    for number, entry in enumerate(loaded.matrix.models):
        model = find_model(entry, loaded.path.parent)
        if model.name in models:
            raise loaded.file.wrong(
                ("models", number), f"a second model called {model.name}", "rename one of the two folders"
            )
        models[model.name] = model
    return models


def _check_matrix(loaded: LoadedMatrix, capabilities: Capabilities) -> None:
    for name, values in loaded.matrix.axes.items():
        for number, value in enumerate(values):
            if wrong := _objection(capabilities, name, value):
                raise loaded.file.wrong(("axes", name, number) if capabilities.axis(name) else ("axes", name), *wrong)
    for name, value in loaded.matrix.settings.items():
        if wrong := _objection(capabilities, name, value):
            raise loaded.file.wrong(("settings", name), *wrong)
    for number, reason in enumerate(loaded.matrix.policy.expect_fallback):
        if reason not in capabilities.fallbacks:
            choices = ", ".join(capabilities.fallbacks)
            raise loaded.file.wrong(
                ("policy", "expect_fallback", number),
                f"target {capabilities.target} never falls back for that reason",
                f"choose one of {choices}" if choices else "leave it out",
            )
    given = {axis.name for axis in capabilities.axes if axis.default is not None} | loaded.matrix.settings.keys()
    for number, cell in enumerate(loaded.matrix.extra_cells):
        for name, value in cell.items():
            if wrong := _objection(capabilities, name, value):
                raise loaded.file.wrong(("extra_cells", number, name), *wrong)
            if name not in loaded.matrix.axes and name not in given:
                raise loaded.file.wrong(
                    ("extra_cells", number, name), "the other cells have no value for it", "give it in `settings`"
                )


def _check_overrides(loaded: LoadedMatrix, capabilities: Capabilities, overrides: Overrides) -> None:
    for name, value in overrides.settings.items():
        if name in loaded.matrix.axis_names:
            raise UsageError(
                f"{name} = {value}", f"{name} is an axis of matrix {loaded.name}", "change the axis in a matrix file"
            )
        if wrong := _objection(capabilities, name, value):
            raise UsageError(f"{name} = {value}", *wrong)
    for fix in overrides.fixes_off:
        if capabilities.fix(fix) is None:
            choices = ", ".join(known.name for known in capabilities.fixes)
            raise UsageError(
                f"fix {fix!r}",
                f"target {capabilities.target} has no such fix",
                f"choose one of {choices}" if choices else "choose another target",
            )
    if len(set(overrides.fixes_off)) < len(overrides.fixes_off):
        raise UsageError(f"fixes {', '.join(overrides.fixes_off)}", "a fix is named twice", "name each once")


def _objection(capabilities: Capabilities, name: str, value: AxisValue) -> tuple[str, str] | None:
    """The rule that a setting breaks and what to do, or None."""
    axis = capabilities.axis(name)
    if axis is None:
        choices = ", ".join(known.name for known in capabilities.axes)
        return f"target {capabilities.target} has no such setting", f"choose one of {choices}"
    if _fits(axis, value):
        return None
    if axis.choices is not None:
        return f"not a value of {name}", f"choose one of {', '.join(map(str, axis.choices))}"
    kind = f"a number, {axis.minimum} or more" if axis.kind == "int" else "a word in quotes"
    return f"{name} is {kind}", "correct the value"


def _fits(axis: AxisSpec, value: AxisValue) -> bool:
    if axis.choices is not None:
        return value in axis.choices
    if axis.kind == "int":
        return isinstance(value, int) and value >= axis.minimum
    return isinstance(value, str)
