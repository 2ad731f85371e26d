"""Owns what this process can say of the code that it has loaded: Python sources, and native libraries."""

import hashlib
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from graphcheck.schema.provenance import Library, Loaded

_PACKAGE = "graphcheck"
_DELETED = " (deleted)"
# A kernel compiled at run time lies in a folder named by what it was compiled from.
_DIGEST = re.compile(r"[0-9A-Za-z]{32,}")
_SHORT = 12

# Both outlive a fork: a rank does not read again what its server has read, and says what was loaded, whatever the file
# has become since.
_sources: dict[str, str] = {}
_libraries: dict[tuple[str, str], Library] = {}


def loaded() -> Loaded:
    """What is loaded now. The first call in a process takes a millisecond for each library, later ones next to none."""
    libraries, note = _native()
    return Loaded(sources=_python(), libraries=libraries, note=note)


def _python() -> dict[str, str]:
    """Module -> sha256 of its source, of graphcheck's modules; one without a source file is left out."""
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] in (_PACKAGE, "__main__")]
    # The process's main module keeps its own name there.
    specs = [spec for module in modules if (spec := getattr(module, "__spec__", None)) is not None]
    names = {spec.name: spec.origin for spec in specs if spec.name.partition(".")[0] == _PACKAGE and spec.origin}
    for name in sorted(names.keys() - _sources.keys()):
        with suppress(OSError):
            _sources[name] = hashlib.sha256(Path(names[name]).read_bytes()).hexdigest()
    return {name: _sources[name] for name in sorted(names) if name in _sources}


def _native() -> tuple[dict[str, Library], str]:
    """Name -> library of each shared object that is mapped, and a note where nothing could be read of them."""
    try:
        # Only here: it may be missing where graphcheck was unpacked and not installed.
        from graphcheck.targets.elf import read_library
    except ImportError as failure:
        return {name: Library() for _, name, _ in _mapped()}, f"build-ids unknown: {failure}"
    found: dict[str, list[Library]] = {}
    for inode, name, path in _mapped():
        if inode not in _libraries:
            _libraries[inode] = read_library(path)
        found.setdefault(name, []).append(_libraries[inode])
    return {name: _together(found[name]) for name in sorted(found)}, ""


def _mapped() -> list[tuple[tuple[str, str], str, str]]:
    """(device, inode), name and path of each shared object in /proc/self/maps, see proc_pid_maps(5); once each."""
    paths = {}
    for line in Path("/proc/self/maps").read_bytes().decode(errors="replace").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith("/"):
            paths[fields[3], fields[4]] = fields[5].removesuffix(_DELETED)
    shared = [(inode, PurePosixPath(path)) for inode, path in paths.items() if ".so" in path]
    return [(inode, _name(path), str(path)) for inode, path in shared if ".so" in path.suffixes]


def _name(path: PurePosixPath) -> str:
    folder = path.parent.name
    return f"{folder[:_SHORT]}/{path.name}" if _DIGEST.fullmatch(folder) else path.name


def _together(files: Sequence[Library]) -> Library:
    """Files of the same name, which a process may well load, count as one library with several build-ids."""
    ids = sorted({file.build_id for file in files if file.build_id is not None})
    needed = dict.fromkeys(name for file in files for name in file.needed)
    return Library(build_id="+".join(ids) if ids else None, needed=tuple(needed))
