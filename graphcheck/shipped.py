"""Owns where the files that come with graphcheck lie: inside the package in a wheel, at the root of a checkout."""

from pathlib import Path

_PACKAGE = Path(__file__).parent


def _shipped(name: str) -> Path:
    in_wheel = _PACKAGE / "_shipped" / name
    return in_wheel if in_wheel.is_dir() else _PACKAGE.parent / name


def matrices_dir() -> Path:
    """Folder of the shipped matrices; suites lie in its subfolder `suites`."""
    return _shipped("matrices")


def golden_dir() -> Path:
    """Folder of the shipped goldens (`MODEL/SUITE.jsonl`). Read-only in a wheel."""
    return _shipped("golden")


def models_dir() -> Path:
    """Folder of the shipped models (`NAME/config.json`, ...)."""
    return _PACKAGE / "models"


def signatures_dir() -> Path:
    """Folder of the recorded signatures (`MATRIX.json`)."""
    return _PACKAGE / "signatures"
