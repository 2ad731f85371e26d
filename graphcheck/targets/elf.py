"""Owns what is read of an ELF file: its build-id and the libraries that it needs."""

from collections.abc import Iterator
from contextlib import suppress

from elftools.common.exceptions import ELFError
from elftools.common.utils import struct_parse
from elftools.elf.dynamic import Dynamic
from elftools.elf.elffile import ELFFile
from elftools.elf.notes import iter_notes

from graphcheck.schema.provenance import Library


def read_library(path: str) -> Library:
    """The library at `path`; what cannot be read of it stays unknown."""
    with suppress(OSError, ELFError, AssertionError), open(path, "rb") as file:
        elf = ELFFile(file)
        build_id, needed = "", tuple[str, ...]()
        for kind, offset, size in _segments(elf):
            if kind == "PT_NOTE":
                notes = (note for note in iter_notes(elf, offset, size) if note["n_type"] == "NT_GNU_BUILD_ID")
                build_id = next((str(note["n_desc"]) for note in notes), build_id)
            elif kind == "PT_DYNAMIC" and size:
                # DynamicSegment would first parse every section up to its own, hash tables of a large library included.
                table = Dynamic(file, elf, None, offset, empty=False)
                # A tag of this kind gets an attribute of that name, which its type does not tell.
                needed = tuple(str(tag.needed) for tag in table.iter_tags("DT_NEEDED"))  # type: ignore[attr-defined]
        return Library(build_id=build_id, needed=needed)
    return Library()


def _segments(elf: ELFFile) -> Iterator[tuple[str, int, int]]:
    """Type, offset and size in bytes of each segment."""
    for number in range(elf.num_segments()):
        start = elf["e_phoff"] + number * elf["e_phentsize"]
        header = struct_parse(elf.structs.Elf_Phdr, elf.stream, stream_pos=start)
        yield header["p_type"], header["p_offset"], header["p_filesz"]
