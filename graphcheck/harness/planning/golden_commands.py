"""Owns the `graphcheck golden` commands that hints and files name: those for the goldens that a request uses."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shlex import join

from graphcheck.harness.planning.request import RunRequest


def regen_command(request: RunRequest) -> str:
    """What makes the goldens, as it can be typed. Of the settings, dtype alone chooses a golden."""
    return _command("regen", request, lambda setting: setting == "dtype")


def calibrate_command(request: RunRequest) -> str:
    """What measures the calibrations, as it can be typed. It asks for logits itself."""
    return _command("calibrate", request, lambda setting: setting != "logits")


def without_places(request: RunRequest, matrix: str) -> RunRequest:
    """The request as a file may tell of it: where matrix, model and goldens lie is nobody else's business."""
    model = None if request.model is None else Path(request.model).name
    return replace(request, matrix=matrix, model=model, golden_dir=None)


def _command(verb: str, request: RunRequest, decides: Callable[[str], bool]) -> str:
    options = {"--model": request.model, "--golden-dir": request.golden_dir, "-k": request.select}
    words = ["graphcheck", "golden", verb, request.matrix]
    words += [word for name, value in options.items() if value is not None for word in (name, str(value))]
    words += [word for one in request.settings if decides(one.partition("=")[0]) for word in ("--set", one)]
    return join(words)
