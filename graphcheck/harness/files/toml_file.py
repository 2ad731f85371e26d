"""Owns reading a TOML file into a record, every wrong thing an error naming file, line, key and choices."""

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from graphcheck.harness.files.toml_lines import KeyPath, line_of
from graphcheck.schema.base import Record, rule_of
from graphcheck.schema.errors import FileError

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class TomlFile:
    """A parsed file that remembers its text, so that errors found later can still name a line."""

    path: Path
    text: str
    document: dict[str, Any]
    error: type[FileError]

    @classmethod
    def read(cls, path: Path, error: type[FileError]) -> "TomlFile":
        """Reads and parses `path`.

        Raises:
            FileError: as the given class, if the file cannot be read, is not UTF-8 or is not TOML.
        """
        try:
            text = path.read_bytes().decode("utf-8")
        except OSError as failure:
            raise error(str(path), f"cannot be read ({failure.strerror})", "check the path") from None
        except UnicodeDecodeError as failure:
            raise error(f"{path}: byte {failure.start}", "TOML is UTF-8 text", "save the file as UTF-8") from None
        try:
            return cls(path, text, tomllib.loads(text), error)
        except (ValueError, RecursionError) as failure:  # of numbers and of nesting beyond Python's limits too
            message, _, line = str(failure).partition(" (at line ")
            place = f"{path}:{line.split(',')[0]}" if line else str(path)
            raise error(place, f"not TOML ({message})", "correct the syntax there") from None

    def record(self, record: type[R]) -> R:
        """The file's content as a validated record.

        Types are taken as TOML gives them: a quoted number is not a number.

        Raises:
            FileError: as the given class, for the first key that is unknown, missing or wrong.
        """
        try:
            return record.model_validate_json(json.dumps(self.document, default=str), strict=True)
        except ValidationError as invalid:
            raise self._first_error(record, invalid.errors(include_url=False)) from None

    def wrong(self, place: KeyPath, rule: str, todo: str) -> FileError:
        """An error about the value at `place`, of the class that this kind of file raises."""
        line = line_of(self.text, place)
        file = str(self.path) if line is None else f"{self.path}:{line}"
        found, value = _look_up(self.document, place)
        shown = f" = {_short(value)}" if found == place and not isinstance(value, dict) else ""
        return self.error(f"{file}: {_dotted(place)}{shown}" if place else file, rule, todo)

    def _first_error(self, record: type[Record], errors: list[ErrorDetails]) -> FileError:
        # A misspelt key is reported both as unknown and as missing: the unknown one is where the user must look.
        first = next((error for error in errors if error["type"] == "extra_forbidden"), errors[0])
        if first["type"] == "extra_forbidden":
            choices = ", ".join(_record_at(record, first["loc"][:-1]).model_fields)
            return self.wrong(first["loc"], rule_of(first), f"choose one of {choices}")
        if first["type"] == "missing":
            return self.wrong(first["loc"], rule_of(first), "add it")
        # The branches of a union fail one by one, each with its own tail that is no key of the file.
        place = _look_up(self.document, first["loc"])[0]
        rules = {rule_of(error): None for error in errors if _look_up(self.document, error["loc"])[0] == place}
        return self.wrong(place, " or ".join(rules), "correct the value")


def _look_up(document: dict[str, Any], place: KeyPath) -> tuple[KeyPath, Any]:
    """The longest start of `place` that the document has, with its value."""
    value: Any = document
    for end, key in enumerate(place):
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return place[:end], value
    return place, value


def _dotted(place: KeyPath) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place).lstrip(".")


def _short(value: Any, limit: int = 60) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _record_at(record: type[BaseModel], place: KeyPath) -> type[BaseModel]:
    for key in place:
        if isinstance(key, str):
            record = next(_records_in(record.model_fields[key].annotation))
    return record


def _records_in(annotation: Any) -> Any:
    if args := get_args(annotation):
        for arg in args:
            yield from _records_in(arg)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
