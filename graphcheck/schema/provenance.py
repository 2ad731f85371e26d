"""Owns the records that say which code ran: the source trees of a run, and what each rank had loaded."""

from pydantic import Field

from graphcheck.schema.base import Record


class Tree(Record):
    """What git says of the repository that a folder lies in. `note` says why there is nothing to say."""

    folder: str = Field(description="top of the repository; the folder itself where there is none")
    commit: str | None = None
    changed: tuple[str, ...] = Field(default=(), description="files that differ from the commit, untracked ones too")
    changed_sha: str | None = Field(default=None, description="sha256 of these files; None if there are none")
    note: str = ""


class Base(Record):
    """The revision that a tree was to descend from, what has changed since, and the globs within which it may."""

    rev: str | None = None
    commit: str
    allow: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


class Provenance(Record):
    """Where the code of a run came from: a part of `run.json`.

    `source` is the tree that graphcheck itself runs from, `here` that of the current folder if it is another one.
    """

    source_sha: str | None = Field(default=None, description="sha256 of graphcheck's source files on disk")
    source: Tree
    here: Tree | None = None
    base: Base | None = None


class Library(Record):
    """A native library: its ELF build-id, and the libraries that it asks for (DT_NEEDED)."""

    build_id: str | None = Field(default=None, description="None if it could not be read, empty if it has none")
    needed: tuple[str, ...] = ()


class Loaded(Record):
    """What a rank has loaded: module -> sha256 of its source file as first seen, and library by base name."""

    sources: dict[str, str] = Field(default_factory=dict)
    libraries: dict[str, Library] = Field(default_factory=dict)
    note: str = Field(default="", description="why build-ids could not be read")
