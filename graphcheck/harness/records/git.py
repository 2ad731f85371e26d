"""Owns asking git about a repository. Changes nothing there, not even git's own caches."""

import os
import subprocess
from pathlib import Path

_SECONDS = 60.0


class GitError(Exception):
    """Git gave no answer: why."""


def repository(folder: Path) -> Path | None:
    """Top of the repository that `folder` lies in, or None."""
    return next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), None)


def git(top: Path, *arguments: str) -> str:
    """What `git ARGUMENTS` prints, run at the top of a repository.

    Raises:
        GitError: git is not installed, failed, or took too long.
    """
    # In a hook of git's own these name the repository that it works on, which may be another one.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-C", str(top), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            env=inherited | {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
        )
    except OSError as failure:
        raise GitError(f"git cannot be started ({failure.strerror})") from None
    except subprocess.TimeoutExpired:
        raise GitError(f"git gave no answer within {_SECONDS:g} s") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["no output"]
        raise GitError(said[0])
    return os.fsdecode(done.stdout)
