"""Owns writing a run folder, so that what happened is on disk the moment it is known. Never reads one."""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from graphcheck.harness.files.golden_store import golden_name, write_golden
from graphcheck.schema.errors import FileError, RunFolderError
from graphcheck.schema.events import Event, FinishedEvent, StepEvent
from graphcheck.schema.golden import Golden
from graphcheck.schema.provenance import Loaded
from graphcheck.schema.run import AttemptFinished, AttemptStarted, RunInfo

RUN_FILE = "run.json"
CELLS_FILE = "cells.jsonl"
STEPS_DIR = "steps"
GOLDEN_DIR = "golden"
LOADED_DIR = "loaded"
ATTEMPTS_DIR = "attempts"
DEFAULT_PARENT = Path("runs")
_NAME_DIGITS = 16
_MAKE_ROOM = "free space or name another --run-dir"


def timestamp() -> str:
    """The time now as records state it: UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def new_run_folder(wanted: Path | None, now: datetime) -> Path:
    """Makes `wanted`, which must be new or empty, or a fresh `runs/YYYYmmdd-HHMMSS`, suffixed if that is taken.

    Raises:
        RunFolderError: `wanted` holds something, or belongs to another run, or the folder cannot be made.
    """
    try:
        return _fresh_folder(now) if wanted is None else _claimed_folder(wanted)
    except OSError as failure:
        raise RunFolderError(
            str(wanted or DEFAULT_PARENT), f"cannot be used ({failure.strerror})", "name another with --run-dir"
        ) from None


def _claimed_folder(wanted: Path) -> Path:
    wanted.mkdir(parents=True, exist_ok=True)
    try:
        if not any(wanted.iterdir()):
            # Of two runs that find the folder empty at once, one alone can make this.
            (wanted / ATTEMPTS_DIR).mkdir()
            return wanted
    except FileExistsError:
        pass
    raise RunFolderError(str(wanted), "a run needs an empty folder", "name another with --run-dir")


def _fresh_folder(now: datetime) -> Path:
    stem = now.strftime("%Y%m%d-%H%M%S")
    number = 1
    while True:
        path = DEFAULT_PARENT / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            number += 1


class RunStore:
    """The open run folder at `path`. One process writes it; a record is on disk when its call returns.

    Every method raises RunFolderError if the disk is full, or the folder can no longer be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def write_info(self, info: RunInfo) -> None:
        """Replaces `run.json` in one rename, so that a reader never sees half of it."""
        partial = self.path / f"{RUN_FILE}.partial"
        with self._writing():
            with partial.open("w", encoding="utf-8") as stream:
                stream.write(info.model_dump_json(indent=2) + "\n")
                _sync(stream)
            partial.replace(self.path / RUN_FILE)

    def append(self, record: AttemptStarted | AttemptFinished) -> None:
        """Adds a line to `cells.jsonl`."""
        with self._writing(), (self.path / CELLS_FILE).open("a", encoding="utf-8") as stream:
            stream.write(record.model_dump_json() + "\n")
            _sync(stream)

    def add_golden(self, golden: Golden) -> None:
        """Keeps the golden that attempts are judged by, so that they can be judged again without it elsewhere."""
        header = golden.header
        path = self.path / GOLDEN_DIR / golden_name(header.model_name, header.suite, header.dtype)
        fields = header.model_dump(exclude={"format", "num_prompts", "body_sha"})
        try:
            write_golden(path, fields, golden.prompts)
        except FileError as failure:
            raise RunFolderError(failure.value, failure.rule, _MAKE_ROOM) from None

    def add_loaded(self, loaded: Loaded) -> str:
        """Keeps what a rank had loaded; returns its name there. Ranks with the same code share a file."""
        text = loaded.model_dump_json(indent=1) + "\n"
        name = hashlib.sha256(text.encode()).hexdigest()[:_NAME_DIGITS]
        path = self.path / LOADED_DIR / f"{name}.json"
        with self._writing():
            if not path.exists():
                path.parent.mkdir(exist_ok=True)
                with path.open("w", encoding="utf-8") as stream:
                    stream.write(text)
                    _sync(stream)
        return name

    def attempt_dir(self, key: str) -> Path:
        """The folder for what a target leaves behind: each rank's log, and anything else it writes."""
        path = self.path / ATTEMPTS_DIR / key
        with self._writing():
            path.mkdir(parents=True, exist_ok=True)
        return path

    @contextmanager
    def steps(self, key: str) -> Iterator[Callable[[Event], None]]:
        """Yields a function that adds step and finished events to `steps/KEY.jsonl`; others are not kept there.

        One at a time they would cost a wait for the disk each: all are on it when the context ends.
        """
        path = self.path / STEPS_DIR / f"{key}.jsonl"
        with self._writing():
            path.parent.mkdir(exist_ok=True)
            stream = path.open("w", encoding="utf-8")

        def write(event: Event) -> None:
            if isinstance(event, StepEvent | FinishedEvent):
                with self._writing():
                    stream.write(event.model_dump_json(exclude_none=True) + "\n")
                    stream.flush()

        try:
            yield write
        finally:
            # Closing writes again what could not be written. What else fails in the context is none of the folder's.
            with self._writing(), stream:
                _sync(stream)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as failure:
            raise RunFolderError(str(self.path), f"can no longer be written ({failure.strerror})", _MAKE_ROOM) from None


def _sync(stream: TextIO) -> None:
    """What was written survives a machine that stops."""
    stream.flush()
    os.fsync(stream.fileno())
