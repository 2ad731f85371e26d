"""Owns the form that goldens and calibrations share on disk: lines of JSON that end in LF, of which none is half."""

import hashlib
import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from graphcheck.schema.errors import GoldenCorrupt

_CONFLICT_MARKERS = (b"<<<<<<< ", b"=======\n", b">>>>>>> ")


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
    if not isinstance(failure, ValidationError):
        return str(failure)
    error = failure.errors()[0]
    return f"{'.'.join(map(str, error['loc']))}: {error['msg']}" if error["loc"] else error["msg"]
