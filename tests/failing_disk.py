"""Owns files that nobody can read, root included, as if their disk failed."""

from pathlib import Path


def make_unreadable(path: Path) -> None:
    """From now on the file at `path` opens, and each read of it is an input/output error."""
    path.unlink(missing_ok=True)
    path.symlink_to("/proc/self/mem")
