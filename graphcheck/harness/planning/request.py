"""Owns what a user asks for when running a matrix, and turning that into a plan. Runs nothing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphcheck.harness.files.matrix_file import LoadedMatrix, load_matrix
from graphcheck.harness.files.model_folder import find_model
from graphcheck.harness.machine.devices import count_devices
from graphcheck.harness.planning.file_names import check_file_names
from graphcheck.harness.planning.plan import Overrides, PlannedAttempt, plan_attempts
from graphcheck.harness.planning.select import parse_selection
from graphcheck.harness.planning.sharing import share_devices
from graphcheck.schema.base import AxisValue
from graphcheck.schema.capabilities import Capabilities
from graphcheck.schema.errors import UsageError
from graphcheck.targets.base import Target


@dataclass(frozen=True)
class RunRequest:
    """The options of `graphcheck run matrix`; `settings` are `key=value` as typed, `command` the words of the call."""

    matrix: str = "default"
    model: str | None = None
    golden_dir: Path | None = None
    run_dir: Path | None = None
    fixes_off: tuple[str, ...] = ()
    ignore_eos: bool = False
    lanes: int | None = None
    settings: tuple[str, ...] = ()
    allow_skipped: bool = False
    require_backend: str | None = None
    select: str | None = None
    repeats: int = 1
    share_gpus: bool = False
    fail_fast: bool = False
    base: str | None = None
    allow: tuple[str, ...] = ()
    command: tuple[str, ...] = ()

    def overrides(self) -> dict[str, AxisValue | bool | None]:
        """The options that changed what the matrix says, as `run.json` records them."""
        given: dict[str, AxisValue | bool | None] = {
            "model": self.model,
            "ignore_eos": self.ignore_eos,
            "lanes": self.lanes,
            "allow_skipped": self.allow_skipped,
            "require_backend": self.require_backend,
            "select": self.select,
            "repeats": self.repeats if self.repeats > 1 else None,
            "share_gpus": self.share_gpus,
            "fail_fast": self.fail_fast,
        }
        typed = {name: value for name, _, value in (setting.partition("=") for setting in self.settings)}
        return {**{name: value for name, value in given.items() if value is not None and value is not False}, **typed}


@dataclass(frozen=True)
class Plan:
    """A valid request: the matrix, the target that runs it, and the attempts in order."""

    loaded: LoadedMatrix
    target: Target
    capabilities: Capabilities
    attempts: Sequence[PlannedAttempt]


def make_plan(
    request: RunRequest, load_target: Callable[[str], Target], count_devices: Callable[[str], int] = count_devices
) -> Plan:
    """Checks everything about a request that can be checked before anything starts.

    Devices are counted only where ranks may share them.

    Raises:
        UsageError: an option or a file that cannot be used.
    """
    loaded = load_matrix(request.matrix)
    target = load_target(loaded.matrix.target)
    capabilities = target.describe()
    overrides = Overrides(
        model=None if request.model is None else find_model(request.model),
        settings=_settings(request, capabilities),
        fixes_off=request.fixes_off,
    )
    attempts = plan_attempts(loaded, capabilities, overrides)
    _check_backend(request.require_backend, capabilities)
    selected = _selected(attempts, request.select)
    check_file_names(one.attempt.model_copy(update={"repeat": request.repeats - 1}) for one in selected)
    if request.share_gpus:
        selected = share_devices(selected, capabilities, count_devices)
    for planned in selected:
        target.check(planned.settings)
    return Plan(loaded, target, capabilities, selected)


def _selected(attempts: Sequence[PlannedAttempt], select: str | None) -> Sequence[PlannedAttempt]:
    if select is None:
        return attempts
    selects = parse_selection(select, [planned.attempt.cell for planned in attempts])
    return [planned for planned in attempts if selects(planned.attempt.cell)]


def _check_backend(required: str | None, capabilities: Capabilities) -> None:
    if required is not None and required not in capabilities.graph_backends:
        choices = ", ".join(capabilities.graph_backends)
        raise UsageError(
            f"--require-backend {required}",
            f"target {capabilities.target} never replays graphs on it",
            f"choose one of {choices}" if choices else "leave it out",
        )


def _settings(request: RunRequest, capabilities: Capabilities) -> Mapping[str, AxisValue]:
    settings: dict[str, AxisValue] = {} if request.lanes is None else {"lanes": request.lanes}
    for setting in request.settings:
        name, equals, value = setting.partition("=")
        if not (name and equals and value):
            raise UsageError(f"--set {setting}", "a setting is written key=value", "write it like --set lanes=4")
        if name in settings:
            raise UsageError(f"--set {setting}", f"{name} is given a value already", "give each setting once")
        axis = capabilities.axis(name)
        settings[name] = _as_number(value) if axis is not None and axis.kind == "int" else value
    return settings


def _as_number(text: str) -> AxisValue:
    """The number that `text` is, else the text itself, for the plan to refuse."""
    try:
        return int(text)
    except ValueError:
        return text
