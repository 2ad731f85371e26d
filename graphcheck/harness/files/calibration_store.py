"""Owns calibration files: one beside each calibrated golden, found, checked and written as goldens are."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from graphcheck.harness.files.golden_store import golden_name
from graphcheck.harness.files.lines import check_text, find_files, json_line, read_file, reason, sha256
from graphcheck.schema.base import AxisValue
from graphcheck.schema.errors import GoldenCorrupt, GoldenStale
from graphcheck.schema.golden import CALIBRATION_FORMAT, Calibration, CalibrationHeader, Calibrations, GoldenHeader

SUFFIX = ".calibration"
NOISE_AXES = ("device", "numerics", "allreduce", "attention", "kv_dtype")
"""Settings that choose the arithmetic: a calibration holds for one value of each."""

CALIBRATE = "graphcheck golden calibrate MATRIX"
"""What measures a calibration, for an error where nobody knows of which matrix; else the whole command is handed in."""


def calibration_name(model: str, suite: str, dtype: str) -> Path:
    """Path of a calibration inside its folder of goldens."""
    return golden_name(model, suite, dtype).with_suffix(SUFFIX)


def made_for(target: str, settings: Mapping[str, AxisValue]) -> dict[str, AxisValue]:
    """What of a cell a calibration is tied to, besides its golden."""
    return {"target": target} | {axis: settings[axis] for axis in NOISE_AXES if axis in settings}


def find_calibrations(golden: GoldenHeader, folders: Sequence[Path], calibrate: str = CALIBRATE) -> Calibrations | None:
    """The first file in `folders` that was measured against this golden; None if there is none for its name.

    Args:
        calibrate: the command that measures it, for the errors.

    Raises:
        GoldenCorrupt: a file is not as it was written, or cannot be read.
        GoldenStale: those that there are were measured against another golden.
    """
    name = calibration_name(golden.model_name, golden.suite, golden.dtype)
    paths = list(find_files(name, folders))
    found = [read_calibrations(path, calibrate) for path in paths]
    fitting = next((one for one in found if one.header.golden_sha == golden.body_sha), None)
    if found and fitting is None:
        raise GoldenStale(str(paths[0]), "measured against another golden of this name", _again(calibrate))
    return fitting


def read_calibrations(path: Path, calibrate: str = CALIBRATE) -> Calibrations:
    """A calibration file whose header agrees with its body.

    Args:
        calibrate: the command that measures it, for the errors.

    Raises:
        GoldenCorrupt: anything about the file is not as it was written.
    """
    todo = _again(calibrate)
    content = read_file(path)
    check_text(path, content, todo)
    first, _, body = content.partition(b"\n")
    try:
        fields = json.loads(first)
        if isinstance(fields, dict) and fields.get("format") != CALIBRATION_FORMAT:
            rule = f"this version reads format {CALIBRATION_FORMAT}"
            raise GoldenCorrupt(f"{path}: format {fields.get('format')}", rule, todo)
        header = CalibrationHeader.model_validate(fields)
        if sha256(body) != header.body_sha:
            raise GoldenCorrupt(f"{path}: body sha256 {sha256(body)[:12]}", f"line 1 says {header.body_sha[:12]}", todo)
        calibrations = tuple(Calibration.model_validate_json(line) for line in body.splitlines())
    except (ValueError, RecursionError) as failure:  # pydantic's ValidationError and json's error are ValueErrors
        raise GoldenCorrupt(str(path), f"not a calibration ({reason(failure)})", todo) from None
    if path.name != calibration_name(header.model_name, header.suite, header.dtype).name:
        raise GoldenCorrupt(str(path), f"it holds that of {header.model_name}/{header.suite} {header.dtype}", todo)
    if len(calibrations) != header.num_calibrations:
        raise GoldenCorrupt(f"{path}: {len(calibrations)} calibrations", f"line 1 says {header.num_calibrations}", todo)
    return Calibrations(header=header, calibrations=calibrations)


def calibrations_bytes(golden: GoldenHeader, measured: Sequence[Calibration], older: Calibrations | None) -> bytes:
    """The file that holds `measured`, and of `older`, if that is of the same golden, what was not measured again.

    The same figures give the same bytes: an old one that differs in date and command alone is kept as it is.
    """
    kept = list(older.calibrations) if older is not None and older.header.golden_sha == golden.body_sha else []
    for one in measured:
        before = next((old for old in kept if old.made_for == one.made_for), None)
        same = before is not None and before == one.model_copy(
            update={"made_on": before.made_on, "command": before.command}
        )
        if not same:
            kept = [old for old in kept if old.made_for != one.made_for] + [one]
    kept.sort(key=lambda one: json.dumps(one.made_for, sort_keys=True))
    body = b"".join(json_line(one.model_dump(mode="json")) for one in kept)
    header = CalibrationHeader(
        model_name=golden.model_name,
        suite=golden.suite,
        dtype=golden.dtype,
        golden_sha=golden.body_sha,
        num_calibrations=len(kept),
        body_sha=sha256(body),
    )
    return json_line(header.model_dump(mode="json")) + body


def _again(calibrate: str) -> str:
    return f"measure it again with `{calibrate}`"
