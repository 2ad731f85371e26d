"""Owns reading a run folder back. Never writes one."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from graphcheck.harness.files.golden_store import golden_name, read_golden
from graphcheck.harness.files.lines import reason
from graphcheck.harness.judging.repeats import settle
from graphcheck.harness.records.run_formats import READABLE, Kind, NotOfItsFormat, upgraded
from graphcheck.harness.records.run_store import ATTEMPTS_DIR, CELLS_FILE, GOLDEN_DIR, LOADED_DIR, RUN_FILE, STEPS_DIR
from graphcheck.schema.errors import GoldenCorrupt, RunFolderError
from graphcheck.schema.events import FinishedEvent, StepEvent
from graphcheck.schema.golden import Golden
from graphcheck.schema.provenance import Loaded
from graphcheck.schema.run import AttemptFinished, AttemptStarted, RecordedAttempt, RunInfo

T = TypeVar("T")
_FIELDS: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
_CELL: TypeAdapter[AttemptStarted | AttemptFinished] = TypeAdapter(
    Annotated[AttemptStarted | AttemptFinished, Field(discriminator="record")]
)
_STEP: TypeAdapter[StepEvent | FinishedEvent] = TypeAdapter(
    Annotated[StepEvent | FinishedEvent, Field(discriminator="event")]
)

_RESTORE = "restore the folder, or run again"


@dataclass(frozen=True)
class Run:
    """A run folder, read. `notes` says what of it could not be read.

    `attempts` are the free passes, of a matrix run one for each cell: the one that speaks for its repeats. All that
    ran are in `every`; `forced` holds the forced pass of those that had one, under the same key.
    """

    path: Path
    info: RunInfo
    attempts: tuple[RecordedAttempt, ...]
    every: tuple[RecordedAttempt, ...]
    forced: dict[str, RecordedAttempt]
    notes: tuple[str, ...]

    def steps(self, key: str) -> tuple[StepEvent, ...]:
        """All ranks' step events of one attempt, in order of arrival."""
        return tuple(event for event in self.events(key) if isinstance(event, StepEvent))

    def events(self, key: str) -> tuple[StepEvent | FinishedEvent, ...]:
        """All that a verdict is drawn from of what ranks reported, in order of arrival."""
        events, _ = _read_lines(self.path / STEPS_DIR / f"{key}.jsonl", _STEP, "step", self.info.format)
        return tuple(events)

    def golden(self, started: AttemptStarted) -> Golden:
        """The golden that an attempt was judged by.

        Raises:
            GoldenCorrupt: the run's copy is missing, damaged, or not the one that `run.json` names.
        """
        name = golden_name(started.model, started.suite, started.dtype)
        golden = read_golden(self.path / GOLDEN_DIR / name, _RESTORE)
        if self.info.goldens.get(name.with_suffix("").as_posix(), golden.header.body_sha) != golden.header.body_sha:
            path = str(self.path / GOLDEN_DIR / name)
            raise GoldenCorrupt(path, "not the golden that the run was judged by", _RESTORE)
        return golden

    def loaded(self, name: str) -> Loaded:
        """What a rank had loaded, by the name that its attempt's facts give.

        Raises:
            RunFolderError: the run's record of it is missing or damaged.
        """
        path = self.path / LOADED_DIR / f"{name}.json"
        try:
            return Loaded.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            raise RunFolderError(str(path), "cannot be read", _RESTORE) from None

    def attempt_dir(self, key: str) -> Path:
        return self.path / ATTEMPTS_DIR / key


def load_run(path: Path) -> Run:
    """The run in folder `path`.

    A cut-off last line of `cells.jsonl` is what a killed run leaves behind: it is left out, and noted.

    Raises:
        RunFolderError: no run folder, or one that is damaged or of another version.
    """
    info = _read_info(path / RUN_FILE)
    records, notes = _read_lines(path / CELLS_FILE, _CELL, "cell", info.format)
    started: dict[str, AttemptStarted] = {}
    finished: dict[str, AttemptFinished] = {}
    for record in records:
        if isinstance(record, AttemptStarted):
            started[record.key] = record
        else:
            finished[record.key] = record
    attempts = [RecordedAttempt(started[key], finished.get(key)) for key in started]
    free = tuple(attempt for attempt in attempts if attempt.started.attempt.feed == "free")
    forced = {
        attempt.started.attempt.model_copy(update={"feed": "free"}).key: attempt
        for attempt in attempts
        if attempt.started.attempt.feed == "forced"
    }
    return Run(path, info, free if info.ablation is not None else _cells(free, info.repeats), free, forced, notes)


def _cells(free: Sequence[RecordedAttempt], repeats: int) -> tuple[RecordedAttempt, ...]:
    """One attempt for each cell; without a verdict unless all of its repeats have one."""
    cells: dict[str, list[RecordedAttempt]] = {}
    for attempt in free:
        cells.setdefault(attempt.started.attempt.model_copy(update={"repeat": 0}).key, []).append(attempt)
    return tuple(_cell(runs, repeats) for runs in cells.values())


def _cell(runs: Sequence[RecordedAttempt], repeats: int) -> RecordedAttempt:
    finished = [run.finished for run in runs if run.finished is not None]
    if len(finished) < repeats:
        return RecordedAttempt(runs[0].started, None)
    speaks = settle(finished)
    return RecordedAttempt(next(run.started for run in runs if run.started.key == speaks.key), speaks)


def _read_info(path: Path) -> RunInfo:
    todo = "give the folder of a run"
    try:
        fields = json.loads(path.read_bytes())
        if isinstance(fields, dict):
            written_in = fields.get("format")
            if not isinstance(written_in, int) or written_in not in READABLE:
                rule = f"this version reads formats {READABLE[0]} to {READABLE[-1]}"
                raise RunFolderError(f"{path}: format {written_in}", rule, "use the version that wrote it")
            fields = upgraded(fields, "run", written_in)
        return RunInfo.model_validate(fields)
    except OSError as failure:
        raise RunFolderError(str(path), f"cannot be read ({failure.strerror})", todo) from None
    except (ValidationError, NotOfItsFormat) as failure:
        raise RunFolderError(str(path), f"not a run's record ({reason(failure)})", todo) from None
    except (ValueError, RecursionError) as failure:
        raise RunFolderError(str(path), f"not JSON ({failure})", todo) from None


def _read_lines(path: Path, adapter: TypeAdapter[T], kind: Kind, written_in: int) -> tuple[list[T], tuple[str, ...]]:
    """The records of a JSON-lines file and a note if its last line is cut off; none at all if there is no file."""
    lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
    notes: tuple[str, ...] = ()
    if lines and not lines[-1].endswith(b"\n"):
        notes = (f"{path.name}:{len(lines)} is cut off and left out: the run was ended from outside",)
        lines.pop()
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(adapter.validate_python(upgraded(_FIELDS.validate_json(line), kind, written_in)))
        except (ValidationError, NotOfItsFormat) as failure:
            raise RunFolderError(f"{path}:{number}", f"not a record ({reason(failure)})", _RESTORE) from None
    return records, notes
