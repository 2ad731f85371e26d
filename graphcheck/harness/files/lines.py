"""Owns what goldens and calibrations share as files: where they are found, and lines of JSON of which none is half."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from stat import S_ISREG
from typing import Any

from pydantic import ValidationError

from graphcheck.schema.base import broken_rule
from graphcheck.schema.errors import GoldenCorrupt

_CONFLICT_MARKERS = (b"<<<<<<< ", b"=======\n", b">>>>>>> ")


def find_files(name: Path, folders: Sequence[Path]) -> Iterator[Path]:
    """The files of that name, in the order of `folders`.

    Raises:
        GoldenCorrupt: nobody can say whether a folder has one, so that the next one's must not take its place.
    """
    for path in (folder / name for folder in folders):
        try:
            is_file = S_ISREG(path.stat().st_mode)
        except (FileNotFoundError, NotADirectoryError, ValueError):  # which is of what is no file name at all
            continue
        except OSError as failure:
            raise _unreadable(path, failure) from None
        if is_file:
            yield path


def read_file(path: Path) -> bytes:
    """What a golden or a calibration file holds.

    Raises:
        GoldenCorrupt: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as failure:
        raise _unreadable(path, failure) from None


def check_text(path: Path, content: bytes, todo: str) -> None:
    """Checks what git or an editor may have done to a file.

    Args:
        todo: what makes the file again.

    Raises:
        GoldenCorrupt: names the line, if it is one.
    """
    if b"\r" in content:
        raise GoldenCorrupt(f"{path}: CR LF line ends", "lines end in LF", "mark it `-text` in .gitattributes")
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        if line.startswith(_CONFLICT_MARKERS):
            raise GoldenCorrupt(f"{path}:{number}", "a merge conflict is left in it", todo)
    if not content.endswith(b"\n"):
        raise GoldenCorrupt(str(path), "cut off: the last line has no end", todo)


def json_line(record: dict[str, Any]) -> bytes:
    """A record in the fewest bytes."""
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode() + b"\n"


def sha256(body: bytes) -> str:
    """In hex."""
    return hashlib.sha256(body).hexdigest()


def reason(failure: Exception) -> str:
    """Why a line is not the record that it should be, in one line."""
    return broken_rule(failure) if isinstance(failure, ValidationError) else str(failure)


def _unreadable(path: Path, failure: OSError) -> GoldenCorrupt:
    return GoldenCorrupt(str(path), f"cannot be read ({failure.strerror})", "check the path and its permissions")
