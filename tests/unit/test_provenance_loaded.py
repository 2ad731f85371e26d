"""What a process says of the code that it has loaded: sources as they were, libraries by build-id, or unknown."""

import builtins
import hashlib
import importlib
import mmap
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from graphcheck.schema.provenance import Library
from graphcheck.targets import loaded as loaded_module
from graphcheck.targets.elf import read_library
from graphcheck.targets.loaded import loaded


def elf(build_id: str, *needed: str) -> bytes:
    """The smallest shared object that says these (elf(5)): a segment for all, one for the note, one for the tags."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in needed)
    note = struct.pack("<3I4s", 4, len(build_id) // 2, 3, b"GNU") + bytes.fromhex(build_id) if build_id else b""
    start = 64 + 3 * 56
    tags = [(1, names.index(name.encode())) for name in needed] + [(5, start + len(note)), (0, 0)]
    dynamic = b"".join(struct.pack("<2Q", *tag) for tag in tags)
    body = note + names + dynamic
    parts = [(1, 0, start + len(body)), (4, start, len(note)), (2, start + len(note) + len(names), len(dynamic))]
    segments = b"".join(struct.pack("<2I6Q", kind, 4, at, at, at, size, size, 1) for kind, at, size in parts)
    header = struct.pack("<4s12B", b"\x7fELF", 2, 1, 1, *[0] * 9)
    return header + struct.pack("<2HI3QI6H", 3, 62, 1, 0, 64, 0, 0, 64, 56, 3, 64, 0, 0) + segments + body


@contextmanager
def mapped(path: Path, content: bytes) -> Iterator[None]:
    """A file that is mapped as a loaded library is."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        yield


def test_sources_are_those_of_the_modules_that_are_loaded() -> None:
    sources = loaded().sources
    module = sys.modules["graphcheck.targets.loaded"]
    assert module.__file__ is not None
    assert sources[module.__name__] == hashlib.sha256(Path(module.__file__).read_bytes()).hexdigest()
    assert all(name.split(".")[0] == "graphcheck" for name in sources)
    assert sources.keys() <= sys.modules.keys()


def test_a_source_that_is_edited_after_it_was_loaded_keeps_its_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "planted.py"
    source.write_text("A = 1\n", encoding="utf-8")
    monkeypatch.setattr(loaded_module, "_PACKAGE", "planted")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("planted")
    before = loaded().sources
    assert before == {"planted": hashlib.sha256(b"A = 1\n").hexdigest()}
    source.write_text("A = 2\n", encoding="utf-8")
    assert loaded().sources == before
    monkeypatch.delitem(sys.modules, "planted")


def test_libraries_are_named_by_build_id_and_by_what_they_need(tmp_path: Path) -> None:
    with mapped(tmp_path / "libplanted.so.1", elf("ab" * 20, "libnccl.so.2", "libc.so.6")):
        found = loaded()
    assert found.note == ""
    assert found.libraries["libplanted.so.1"] == Library(build_id="ab" * 20, needed=("libnccl.so.2", "libc.so.6"))
    real = next(library for name, library in found.libraries.items() if name.startswith(("libc.so", "libc-")))
    assert real.build_id
    assert real.needed
    assert not {name for name, library in found.libraries.items() if library.build_id is None}


def test_a_library_that_was_replaced_on_disk_is_told_by_what_was_read_before(tmp_path: Path) -> None:
    path = tmp_path / "libplanted.so"
    with mapped(path, elf("01")):
        assert loaded().libraries["libplanted.so"].build_id == "01"
        path.unlink()
        assert loaded().libraries["libplanted.so"].build_id == "01"


def test_a_library_that_is_gone_or_broken_is_unknown_and_one_without_an_id_is_not(tmp_path: Path) -> None:
    with mapped(tmp_path / "libgone.so", elf("01")):
        (tmp_path / "libgone.so").unlink()
        assert loaded().libraries["libgone.so"].build_id is None
    for broken in (b"\x7fELF", b"not an ELF file", elf("01")[:100], elf("01")[:230], elf("01", "libc.so.6")[:-20]):
        (tmp_path / "odd.so").write_bytes(broken)
        assert read_library(str(tmp_path / "odd.so")) == Library()
    (tmp_path / "odd.so").write_bytes(elf("", "libc.so.6"))
    assert read_library(str(tmp_path / "odd.so")) == Library(build_id="", needed=("libc.so.6",))


def test_two_libraries_of_one_name_count_as_one_with_both_ids(tmp_path: Path) -> None:
    with mapped(tmp_path / "one" / "libtwice.so", elf("02", "a")), mapped(tmp_path / "two" / "libtwice.so", elf("01")):
        assert loaded().libraries["libtwice.so"] == Library(build_id="01+02", needed=("a",))


def test_a_kernel_compiled_at_run_time_is_named_with_its_folder(tmp_path: Path) -> None:
    with mapped(tmp_path / ("A7" * 26) / "launcher.so", elf("01")):
        assert loaded().libraries["A7A7A7A7A7A7/launcher.so"].build_id == "01"


def test_without_pyelftools_build_ids_are_unknown_and_a_note_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("elftools"):
            raise ModuleNotFoundError("No module named 'elftools'")
        return real(name, *rest)

    monkeypatch.delitem(sys.modules, "graphcheck.targets.elf")
    monkeypatch.setattr(builtins, "__import__", without)
    with mapped(tmp_path / "libplanted.so", elf("01")):
        found = loaded()
    assert found.note == "build-ids unknown: No module named 'elftools'"
    assert found.libraries["libplanted.so"] == Library()
    assert found.sources
