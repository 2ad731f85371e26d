"""Owns golden files on disk: where they are looked up, how they are checked, and the bytes that are written."""

import json
import os
from collections.abc import Mapping, Sequence
from ctypes import c_float
from os.path import isdir  # unlike Path's, False for what is no file name at all
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from graphcheck import shipped
from graphcheck.harness.files.lines import check_text, find_files, json_line, read_file, reason, sha256
from graphcheck.harness.files.model_folder import ModelFolder
from graphcheck.harness.files.suite_file import LoadedSuite
from graphcheck.schema.errors import FileError, GoldenCorrupt, GoldenMissing, GoldenStale, UsageError
from graphcheck.schema.golden import READABLE_FORMATS, Golden, GoldenHeader, GoldenPrompt

DEFAULT_GOLDEN_DIR = Path("golden")
"""Where goldens are looked up first and written to, unless `--golden-dir` says otherwise."""

REGEN = "graphcheck golden regen MATRIX"
"""What makes a golden, for an error where nobody knows of which matrix; else the whole command is handed in."""


def made_again_by(regen: str) -> str:
    """What to do about a golden that cannot be used."""
    return f"make it again with `{regen}`"


_MAKE_AGAIN = made_again_by(REGEN)


def wanted_golden_dir(golden_dir: Path | None) -> Path:
    """The folder that was asked for, else the default one, which need not be there.

    Raises:
        UsageError: what was asked for is no folder; goldens from elsewhere would silently take its place.
    """
    if golden_dir is not None and not isdir(golden_dir):
        raise UsageError(f"--golden-dir {golden_dir}", "no such folder", "correct it, or leave it out")
    return golden_dir or DEFAULT_GOLDEN_DIR


def golden_folders(golden_dir: Path, *matrix_paths: Path) -> tuple[Path, ...]:
    """The folders in which goldens are looked up, in order: the user's, beside the matrix file, the shipped one."""
    folders = (golden_dir, *(path.parent / "golden" for path in matrix_paths), shipped.golden_dir())
    unique: dict[Path, Path] = {}
    for folder in folders:
        unique.setdefault(folder.resolve(), folder)
    return tuple(unique.values())


def golden_name(model: str, suite: str, dtype: str) -> Path:
    """Path of a golden inside its folder."""
    return Path(model) / (f"{suite}.jsonl" if dtype == "float32" else f"{suite}.{dtype}.jsonl")


def find_golden(name: Path, folders: Sequence[Path]) -> Path | None:
    """The golden of that name in the first folder that has one.

    Raises:
        GoldenCorrupt: a folder before that cannot be looked into.
    """
    return next(find_files(name, folders), None)


def load_golden(
    model: ModelFolder, suite: LoadedSuite, dtype: str, folders: Sequence[Path], regen: str = REGEN
) -> Golden:
    """The first golden found in `folders`. A bad one is an error, never passed over for the next folder's.

    Args:
        regen: the command that makes it, for the errors.

    Raises:
        GoldenMissing: none of the folders has one.
        GoldenCorrupt: it is cut off, edited, or in another format.
        GoldenStale: it was made for another model, suite or dtype.
    """
    name = golden_name(model.name, suite.name, dtype)
    path = find_golden(name, folders)
    if path is None:
        raise GoldenMissing(
            f"golden {name}",
            f"not in {', '.join(map(str, folders))}",
            f"make it with `{regen}`",
        )
    todo = made_again_by(regen)
    golden = read_golden(path, todo)
    if differing := differing_keys(golden.header, model.fingerprint(), suite.sha, dtype):
        raise GoldenStale(str(path), f"made for something else: {', '.join(differing)} differ", todo)
    header = golden.header
    if golden_name(header.model_name, header.suite, header.dtype) != name:
        raise GoldenCorrupt(str(path), f"it calls itself that of {header.model_name}/{header.suite}", todo)
    ids = [prompt.id for prompt in golden.prompts]
    if ids != [prompt.id for prompt in suite.suite.prompts]:
        raise GoldenCorrupt(f"{path}: prompts {', '.join(ids)}", "not the suite's prompts in its order", todo)
    return golden


def differing_keys(header: GoldenHeader, model: Mapping[str, str], suite_sha: str, dtype: str) -> list[str]:
    """What a golden was made for and is not wanted for: `model.weights`, `suite_sha`, ...; empty if it fits."""
    made_for = {f"model.{part}": sha for part, sha in header.model.items()}
    made_for |= {"suite_sha": header.suite_sha, "dtype": header.dtype}
    wanted = {f"model.{part}": sha for part, sha in model.items()} | {"suite_sha": suite_sha, "dtype": dtype}
    return [key for key in sorted(made_for | wanted) if made_for.get(key) != wanted.get(key)]


def read_golden(path: Path, todo: str = _MAKE_AGAIN) -> Golden:
    """A golden whose header agrees with its body.

    Args:
        todo: what to do if it is not as it was written, for the error.

    Raises:
        GoldenCorrupt: anything about the file is not as it was written.
    """
    return parse_golden(path, read_file(path), todo)


def parse_golden(path: Path, content: bytes, todo: str = _MAKE_AGAIN) -> Golden:
    """The golden that `content` is; `path` is for the errors, which are those of `read_golden`."""
    check_text(path, content, todo)
    first, _, body = content.partition(b"\n")
    header = _header(path, first, todo)
    lines = body.splitlines()
    if len(lines) != header.num_prompts:
        raise GoldenCorrupt(f"{path}: {len(lines)} prompts", f"line 1 says {header.num_prompts}", todo)
    if sha256(body) != header.body_sha:
        raise GoldenCorrupt(f"{path}: body sha256 {sha256(body)[:12]}", f"line 1 says {header.body_sha[:12]}", todo)
    return Golden(header=header, prompts=tuple(_prompt(path, n, line, todo) for n, line in enumerate(lines, start=2)))


def write_golden(path: Path, header: dict[str, Any], prompts: Sequence[GoldenPrompt]) -> bool:
    """Writes a golden in one rename; True if the file changed.

    The same prompts give the same bytes: see `golden_bytes`.

    Raises:
        FileError: the folder cannot be written.
    """
    return replace_file(path, golden_bytes(header, prompts, [path]))


def golden_bytes(header: dict[str, Any], prompts: Sequence[GoldenPrompt], older: Sequence[Path] = ()) -> bytes:
    """A golden as its file holds it.

    Args:
        header: the fields of GoldenHeader, without `format`, `num_prompts` and `body_sha`.
        older: files that it may replace; the first with the same body passes on `made_on`, `command` and `hard`.
    """
    body = b"".join(json_line(_prompt_record(prompt)) for prompt in prompts)
    record = GoldenHeader.model_validate(header | {"num_prompts": len(prompts), "body_sha": sha256(body)})
    same_body = (old for path in older if (old := _readable_header(path)) and old.body_sha == record.body_sha)
    if old := next(same_body, None):
        kept = {"made_on": old.made_on, "command": old.command, "hard": record.hard or old.hard}
        record = record.model_copy(update=kept)
    return json_line(record.model_dump(mode="json", exclude_none=True)) + body


def replace_file(path: Path, content: bytes) -> bool:
    """Writes `content` in one rename; True if the file changed.

    Raises:
        FileError: the folder cannot be written, or the file cannot be read.
    """
    try:
        if path.is_file() and path.read_bytes() == content:
            return False
        _replace(path, content)
    except OSError as failure:
        raise FileError(str(path), f"cannot be written ({failure.strerror})", "choose another --golden-dir") from None
    return True


def shortest_float32(value: float) -> float:
    """The number with the fewest decimal digits that is the same float32 as `value`."""
    wanted = c_float(value).value
    candidates = (float(f"{value:.{digits}g}") for digits in range(1, 10))
    return next(candidate for candidate in candidates if c_float(candidate).value == wanted)


def _replace(path: Path, content: bytes) -> None:
    """In one rename: whoever reads meanwhile, or after a crash, finds the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _header(path: Path, line: bytes, todo: str) -> GoldenHeader:
    try:
        fields = json.loads(line)
        if isinstance(fields, dict) and fields.get("format") not in READABLE_FORMATS:
            rule = f"this version reads formats {' and '.join(map(str, READABLE_FORMATS))}"
            raise GoldenCorrupt(f"{path}: format {fields.get('format')}", rule, todo)
        return GoldenHeader.model_validate(fields)
    except (ValueError, RecursionError) as failure:  # pydantic's ValidationError and json's error are ValueErrors
        raise GoldenCorrupt(f"{path}:1", f"not a golden's header ({reason(failure)})", todo) from None


def _readable_header(path: Path) -> GoldenHeader | None:
    try:
        return read_golden(path).header
    except GoldenCorrupt:
        return None


def _prompt(path: Path, number: int, line: bytes, todo: str) -> GoldenPrompt:
    try:
        prompt = GoldenPrompt.model_validate_json(line)
    except ValidationError as failure:
        raise GoldenCorrupt(f"{path}:{number}", f"not a prompt ({reason(failure)})", todo) from None
    if len(prompt.steps) != len(prompt.ids):
        raise GoldenCorrupt(
            f"{path}:{number}: prompt {prompt.id}", f"{len(prompt.ids)} ids but {len(prompt.steps)} steps", todo
        )
    return prompt


def _prompt_record(prompt: GoldenPrompt) -> dict[str, Any]:
    record = prompt.model_dump(mode="json", exclude_defaults=True)
    for step in record["steps"]:
        step["top"] = [[token, shortest_float32(logit)] for token, logit in step["top"]]
    return record
