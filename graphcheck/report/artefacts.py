"""Owns the list of what a run left on disk, for a run that was ended before it could say the rest."""

from collections.abc import Iterator
from pathlib import Path

from graphcheck.report.words import counted

_BYTES_PER_KB = 1000


def artefacts(run: Path) -> Iterator[str]:
    """A line for each thing in the run folder: a file, or a folder with the number of files below it."""
    for path in sorted(run.iterdir()):
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        what = str(path) if path.is_file() else f"{path}/, {counted(len(files), 'file')}"
        yield f"kept: {what}, {sum(file.stat().st_size for file in files) / _BYTES_PER_KB:.1f} kB"
