"""Owns pending files: where a new golden waits beside the old one, and what is waiting."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from graphcheck import shipped
from graphcheck.harness.files.golden_store import (
    REGEN,
    find_golden,
    golden_bytes,
    golden_name,
    made_again_by,
    parse_golden,
    read_golden,
    replace_file,
    wanted_golden_dir,
)
from graphcheck.harness.golden.review import Review, review
from graphcheck.schema.errors import GoldenCorrupt, UsageError
from graphcheck.schema.golden import Golden, GoldenPrompt

SUFFIX = ".pending"
_NO_PENDING = f"remove it, and {made_again_by(REGEN)}"


class State(StrEnum):
    """What became of a golden that was made."""

    FIRST = "first"
    SAME = "same"
    PENDING = "pending"


def may_write(*, named: bool) -> bool:
    """In CI (the variable is set and not empty) only what is asked for by name is written."""
    return named or not os.environ.get("CI")


@dataclass(frozen=True)
class GoldenPlace:
    """Where goldens are looked up, where they go, and whether they may.

    Args:
        folders: in which the golden that a new one is compared with is looked up, in order.
        beside: those of `folders` whose goldens get their pending files beside them; for the others it is `golden_dir`.
        writes: False shows what would change and leaves every file as it is.
    """

    golden_dir: Path
    folders: Sequence[Path]
    beside: Sequence[Path] = ()
    writes: bool = True


@dataclass(frozen=True)
class Filed:
    """One golden made. `path` is the file that holds it: a golden where it is the first or the same, else pending."""

    path: Path
    state: State
    review: Review
    written: bool


def file_golden(name: Path, header: dict[str, Any], prompts: Sequence[GoldenPrompt], place: GoldenPlace) -> Filed:
    """Puts a golden where it belongs: at once if it is the first of its name, else into a pending file if it differs.

    Raises:
        GoldenCorrupt: a folder in which the old one may lie cannot be looked into.
        FileError: the golden folder cannot be written.
    """
    found = find_golden(name, place.folders)
    home = place.golden_dir if found is None or found.parents[1] not in place.beside else found.parents[1]
    golden, pending = home / name, home / f"{name}{SUFFIX}"
    content = golden_bytes(header, prompts, [path for path in (found, pending) if path is not None])
    new = parse_golden(pending, content)
    if found is None:
        return Filed(golden, State.FIRST, Review(new=new), place.writes and replace_file(golden, content))
    against = review_against(found, new)
    if against.unreadable is None and found.read_bytes() == content:
        if place.writes:
            pending.unlink(missing_ok=True)
        return Filed(found, State.SAME, against, False)
    return Filed(pending, State.PENDING, against, place.writes and replace_file(pending, content))


def review_against(path: Path, new: Golden) -> Review:
    """What changes if `new` replaces the golden at `path`."""
    try:
        return review(read_golden(path), new)
    except GoldenCorrupt as corrupt:
        return Review(new=new, unreadable=f"{corrupt.value}: {corrupt.rule}")


@dataclass(frozen=True)
class Pending:
    """A golden that waits. `old` is the file that it is compared with: its own place, else the shipped one's."""

    path: Path
    old: Path | None
    review: Review

    @property
    def golden_path(self) -> Path:
        return self.path.with_name(self.path.name.removesuffix(SUFFIX))


def find_pending(paths: Sequence[Path], golden_dir: Path | None = None, *, writes: bool = False) -> list[Pending]:
    """The pending goldens at `paths` (either file, or a folder), else all of the golden folder, in order of path.

    Args:
        writes: they are to be accepted or rejected, which in CI takes their names.

    Raises:
        UsageError: a path has no pending file, `golden_dir` is no folder, or in CI none is named.
        GoldenCorrupt: a pending file is not as it was written, or lies under another name than its content's.
    """
    if writes and not may_write(named=bool(paths)):
        raise UsageError("CI is set", "nothing is written there unless it is named", "name the pending files")
    found: dict[Path, None] = {}
    for path in paths or [wanted_golden_dir(golden_dir)]:
        if path.is_dir():
            files = sorted(path.rglob(f"*.jsonl{SUFFIX}"))
        else:
            file = path if path.name.endswith(SUFFIX) else path.with_name(path.name + SUFFIX)
            files = [file] if file.is_file() else []
        if paths and not files:
            raise UsageError(str(path), "nothing is pending there", "see `graphcheck golden list`")
        found |= dict.fromkeys(files)
    return [_pending(path) for path in found]


def _pending(path: Path) -> Pending:
    new = read_golden(path, _NO_PENDING)
    name = golden_name(new.header.model_name, new.header.suite, new.header.dtype)
    if (path.parent.name, path.name) != (name.parent.name, f"{name.name}{SUFFIX}"):
        raise GoldenCorrupt(str(path), f"it holds {name}", _NO_PENDING)
    old = find_golden(name, [path.parents[1], shipped.golden_dir()])
    return Pending(path, old, review_against(old, new) if old else Review(new=new))
