"""Owns how a Python process of graphcheck's own is started, and that it ends with the process that started it."""

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PACKAGE_ROOT = str(Path(__file__).parents[2])


def command(module: str, *arguments: object) -> list[str]:
    """Runs a module by this interpreter.

    No file of the folder where the user stands can take a library's place (-P), and what the process prints is in its
    log even if it is killed (-u).
    """
    return [sys.executable, "-P", "-u", "-m", module, *map(str, arguments)]


def environment(**changes: str) -> dict[str, str]:
    """This process's environment with `changes`, in which this same graphcheck is found, installed or not."""
    path = os.pathsep.join(filter(None, [_PACKAGE_ROOT, os.environ.get("PYTHONPATH", "")]))
    return os.environ | {"PYTHONPATH": path} | changes


def die_with(parent: int) -> None:
    """This process is killed when `parent`, the process that started it, ends; it exits here if that is gone already.

    Works on a process that was stopped as well, which would see no file close. See prctl(2): the signal comes when the
    thread that started this process ends.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
