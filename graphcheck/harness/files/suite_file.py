"""Owns finding and reading a suite file, and the hash of its content that a golden is tied to."""

import hashlib
import json
from dataclasses import dataclass
from os.path import isfile  # unlike Path's, False for what is no file name at all
from pathlib import Path

from graphcheck import shipped
from graphcheck.harness.files.toml_file import TomlFile
from graphcheck.schema.errors import SuiteError
from graphcheck.schema.suite import Suite


@dataclass(frozen=True)
class LoadedSuite:
    """A valid suite with the file it came from."""

    name: str
    path: Path
    suite: Suite
    file: TomlFile

    @property
    def sha(self) -> str:
        """sha256 (hex) of what decides the tokens and the schedule: everything but the names people read."""
        content = self.suite.model_dump(mode="json", exclude={"name", "title"}, exclude_defaults=True)
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(canonical.encode()).hexdigest()


def load_suite(name: str, matrix_path: Path) -> LoadedSuite:
    """The suite `name` from `suites/` beside the matrix file, else the shipped one.

    Raises:
        SuiteError: no such suite, or the file breaks a rule.
    """
    folders = [matrix_path.parent / "suites", shipped.matrices_dir() / "suites"]
    if Path(name).name != name:
        raise SuiteError(f"suite {name!r}", "a suite is given by name", f"put it into {folders[0]} and name it")
    path = next((folder / f"{name}.toml" for folder in folders if isfile(folder / f"{name}.toml")), None)
    if path is None:
        names = sorted({file.stem for folder in folders for file in folder.glob("*.toml")})
        raise SuiteError(
            f"suite {name!r}",
            f"not in {' nor in '.join(dict.fromkeys(map(str, folders)))}",
            f"choose one of {', '.join(names)}" if names else "add the file",
        )
    file = TomlFile.read(path, SuiteError)
    suite = file.record(Suite)
    if suite.name != name:
        raise file.wrong(("name",), f"the file's name says {name!r}", "make the two agree")
    return LoadedSuite(name, path, suite, file)
