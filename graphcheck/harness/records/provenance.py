"""Owns what is found out about the source trees of a run, and whether they are what was asked for."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import graphcheck
from graphcheck.harness.records.git import GitError, git, repository
from graphcheck.schema.errors import ProvenanceError
from graphcheck.schema.provenance import Base, Provenance, Tree

PACKAGE = Path(graphcheck.__file__).parent
LARGE = 16 << 20
"""Bytes. A larger file that differs counts by its size and time: nobody waits for a hash of untracked weights."""

_SHOWN = 5


def provenance(base: str | None = None, allow: Sequence[str] = ()) -> Provenance:
    """The source tree that graphcheck runs from, and that of the current folder if it is another.

    `base` and `allow` are asked of the current folder's repository, or of graphcheck's own where there is none.

    Raises:
        ProvenanceError: `base` is no ancestor of what is checked out, or a file outside `allow` has changed since.
    """
    source_sha, source = _source()
    here = repository(Path.cwd())
    other = None if here is None or str(here) == source.folder else read_tree(here)
    found = Provenance(source_sha=source_sha, source=source, here=other)
    if base is None and not allow:
        return found
    return found.model_copy(update={"base": _base(other or source, base, allow)})


def read_tree(top: Path) -> Tree:
    """The repository whose top is `top`, as it is now."""
    try:
        status = git(top, "status", "--porcelain=v2", "--branch", "--no-renames", "--untracked-files=all", "-z")
    except GitError as failure:
        return Tree(folder=str(top), note=str(failure))
    lines = status.split("\0")
    commit = next(line.split()[-1] for line in lines if line.startswith("# branch.oid "))
    # A changed file's name is the ninth field, an unmerged one's the eleventh, an untracked one's the second.
    columns = {"1": 8, "u": 10, "?": 1}
    changed = sorted(line.split(" ", columns[line[0]])[-1] for line in lines if line[:1] in columns and line)
    return Tree(
        folder=str(top),
        commit=None if commit == "(initial)" else commit,
        changed=tuple(map(_printable, changed)),
        changed_sha=_sha(top, changed) if changed else None,
        note="no commit yet" if commit == "(initial)" else "",
    )


@cache
def _source() -> tuple[str, Tree]:
    """That of this process: its own modules do not change when their files do."""
    files = sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py"))
    return _sha(PACKAGE, files), _source_tree()


def _source_tree() -> Tree:
    top = repository(PACKAGE)
    if top is None:
        return Tree(folder=str(PACKAGE), note="in no git repository")
    try:
        if not git(top, "ls-files", "--", str(PACKAGE / "__init__.py")):
            return Tree(folder=str(PACKAGE), note="an installed copy that git does not track")
    except GitError as failure:
        return Tree(folder=str(PACKAGE), note=str(failure))
    return read_tree(top)


def _base(tree: Tree, rev: str | None, allow: Sequence[str]) -> Base:
    option = f"--base {rev}" if rev is not None else f"--allow {allow[0]}"
    if "" in allow:
        raise ProvenanceError(
            "--allow ''", "an empty glob stands for every file", "write --allow '**' if that is meant"
        )
    if tree.commit is None:
        raise ProvenanceError(option, f"{tree.folder}: {tree.note}", "run in a repository with a commit")
    top = Path(tree.folder)
    named = "HEAD" if rev is None else rev
    try:
        commit = git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{named}^{{commit}}").strip()
    except GitError:
        raise ProvenanceError(option, f"no commit of {top}", "name a commit, a branch or a tag there") from None
    if _ask(top, "rev-list", "--max-count=1", commit, "--not", "HEAD"):
        what = f"{option} ({_short(commit)})"
        raise ProvenanceError(what, f"no ancestor of {_short(tree.commit)} in {top}", "rebase, or name another commit")
    outside = _changed_since(top, commit, allow) if allow else ()
    if outside:
        files = ", ".join(outside[:_SHOWN]) + (f" and {len(outside) - _SHOWN} more" if len(outside) > _SHOWN else "")
        todo = "undo what they change, or allow it with one more --allow"
        raise ProvenanceError(files, f"changed since {_short(commit)}, outside {' '.join(allow)}", todo)
    return Base(rev=rev, commit=commit, allow=tuple(allow), changed=tuple(_changed_since(top, commit)))


def _changed_since(top: Path, commit: str, allow: Sequence[str] = ()) -> list[str]:
    """Files that differ from `commit`, untracked ones too; those within `allow` left out.

    A glob is git's own (gitglossary, "pathspec"): `*` stays within a folder, `**` does not, a folder stands for all
    in it.
    """
    inside = (":(top)", *(f":(top,glob,exclude){glob}" for glob in allow))
    tracked = _ask(top, "diff", "--name-only", "--no-renames", "-z", commit, "--", *inside)
    untracked = _ask(top, "ls-files", "--others", "--exclude-standard", "-z", "--", *inside)
    return sorted({_printable(name) for name in (tracked + untracked).split("\0") if name})


def _ask(top: Path, *arguments: str) -> str:
    try:
        return git(top, *arguments)
    except GitError as failure:
        raise ProvenanceError(f"git {arguments[0]} in {top}", str(failure), "repair the repository") from None


def _sha(top: Path, files: Iterable[str]) -> str:
    """sha256 over the names and contents of files; one that is gone, a link or a folder counts as that."""
    total = hashlib.sha256()
    for name in files:
        total.update(os.fsencode(name) + b"\0" + _content(top / name) + b"\0")
    return total.hexdigest()


def _content(path: Path) -> bytes:
    try:
        if path.is_symlink():
            return b"link " + os.fsencode(path.readlink())
        if path.is_dir():
            return b"folder"
        size, time = path.stat().st_size, path.stat().st_mtime_ns
        if size > LARGE:
            return f"{size} bytes of {time}".encode()
        return hashlib.sha256(path.read_bytes()).hexdigest().encode()
    except OSError:
        return b"gone"


def _printable(name: str) -> str:
    """A file name as text that every record can hold."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _short(commit: str) -> str:
    return commit[:12]
