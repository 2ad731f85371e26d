"""Imports point one way: the source is parsed, function-level and TYPE_CHECKING imports included."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import graphcheck

PACKAGE = Path(graphcheck.__file__).parent

# A layer may import itself and those it names here. The root module holds the version and nothing else.
MAY_IMPORT = {
    "schema": set[str](),
    "engine": set[str](),
    "shipped": set[str](),
    "models": set[str](),
    "targets": {"schema", "shipped", "models"},
    "harness": {"targets", "schema", "shipped", "models"},
    "report": {"harness", "targets", "schema", "shipped"},
    "cli": {"report", "harness", "targets", "schema", "shipped", "models"},
}
ROOMS = ("files", "machine", "judging", "records", "planning", "running", "golden")
"""Of the harness, from the bottom: a room may import those before it. What lies beside the rooms is above them all."""
ENGINE_USER = "graphcheck.targets.bundled"
NO_HEAVY_IMPORTS = {
    "schema": {"torch", "transformers", "pandas", "numpy", "typer", "rich"},
    "shipped": {"torch", "transformers", "pandas", "numpy", "typer", "rich"},
    "harness": {"torch", "transformers", "pandas", "typer", "rich"},
    "report": {"torch", "transformers"},
    "cli": {"torch", "transformers", "pandas"},
    "engine": {"transformers", "pandas", "pydantic", "typer", "rich"},
}
TORCH_FREE_ENGINE = {f"graphcheck.engine.{name}" for name in ("fixes", "scheduler", "blocks", "request", "journal")}


def modules(package: Path) -> dict[str, Path]:
    """Dotted name -> file of every module of the package."""
    names = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def layer(module: str) -> str:
    """`cli` for the entry points, the second name otherwise; the root module is its own layer."""
    second = module.split(".")[1] if "." in module else "root"
    return "cli" if second == "__main__" else second


def room(module: str) -> str:
    """`judging` for graphcheck.harness.judging.judge; the module's own name beside the rooms."""
    return module.split(".")[2] if module.count(".") > 1 else "harness"


def height(module: str) -> int:
    return ROOMS.index(room(module)) if room(module) in ROOMS else len(ROOMS)


def imports(module: str, path: Path, known: set[str]) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything a file imports, wherever in the file it does so."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            for name in node.names:
                submodule = f"{origin}.{name.name}"
                yield node.lineno, submodule if submodule in known else origin
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            function = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            argument = node.args[0] if node.args else None
            if function in ("import_module", "__import__") and isinstance(argument, ast.Constant):
                yield node.lineno, str(argument.value)


def violations(package: Path) -> list[str]:
    """One line for each import that breaks the layers, and for each file whose place is not known."""
    found = []
    files = modules(package)
    for module, path in sorted(files.items()):
        own = layer(module)
        for line, imported in imports(module, path, set(files)):
            if reason := objection(module, own, imported):
                found.append(f"{path.relative_to(package.parent)}:{line}: imports {imported}: {reason}")
        if own not in {*MAY_IMPORT, "root"}:
            found.append(f"{path.relative_to(package.parent)}: {own} is no layer")
    if (package / "engine" / "__init__.py").read_text().strip():
        found.append("graphcheck/engine/__init__.py: must be empty")
    found += [f"{module}: loads torch through {chain}" for module, chain in torch_chains(files)]
    return found


def objection(module: str, own: str, imported: str) -> str | None:
    top = imported.split(".")[0]
    if top != "graphcheck":
        if top in NO_HEAVY_IMPORTS.get(own, set()):
            return f"{own} does without {top}"
        if own == "schema" and top not in {*sys.stdlib_module_names, "pydantic", "pydantic_core"}:
            return "schema knows the standard library and pydantic"
        return None
    other = layer(imported)
    if own == "root":
        return "the root module imports nothing"
    if own == other == "harness" and height(imported) > height(module):
        return f"{room(module)} is not above {room(imported)}"
    if other in (own, "root"):
        return "the engine could be lifted out whole" if own == "engine" and other == "root" else None
    if other == "engine":
        return None if f"{module}.".startswith(f"{ENGINE_USER}.") else f"{ENGINE_USER} alone imports the engine"
    return None if other in MAY_IMPORT.get(own, set()) else f"{own} is not above {other}"


def torch_chains(files: dict[str, Path]) -> Iterator[tuple[str, str]]:
    """Engine modules that must be pure and, followed through their imports, are not."""

    def chain(module: str, seen: tuple[str, ...]) -> str | None:
        for _, imported in imports(module, files[module], set(files)):
            if imported.split(".")[0] == "torch":
                return " -> ".join([*seen, module, "torch"])
            if imported in files and imported not in (*seen, module) and (found := chain(imported, (*seen, module))):
                return found
        return None

    for module in sorted(TORCH_FREE_ENGINE & set(files)):
        if found := chain(module, ()):
            yield module, found


def test_the_layers_hold() -> None:
    assert violations(PACKAGE) == []
    assert set(modules(PACKAGE)) >= TORCH_FREE_ENGINE


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A package of the same shape with nothing in it."""
    package = tmp_path / "graphcheck"
    for folder in ("schema", "engine", "targets", "targets/bundled", "harness", "report", "cli", "models"):
        (package / folder).mkdir(parents=True, exist_ok=True)
        (package / folder / "__init__.py").write_text("")
    for name in TORCH_FREE_ENGINE:
        (tmp_path / f"{name.replace('.', '/')}.py").write_text("")
    for name in ("__init__", "__main__", "shipped"):
        (package / f"{name}.py").write_text("")
    assert violations(package) == []
    return package


@pytest.mark.parametrize(
    ("file", "source", "expected"),
    [
        ("harness/bad.py", "import torch", "harness does without torch"),
        ("harness/bad.py", "def f():\n    from torch import nn", ":2: imports torch: harness does without"),
        ("harness/bad.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch.nn", ":3: imports"),
        ("harness/bad.py", "from importlib import import_module\nimport_module('torch')", ":2: imports torch"),
        ("harness/bad.py", "from graphcheck.report import tables", "harness is not above report"),
        ("harness/bad.py", "from ..cli import app", "harness is not above cli"),
        ("harness/bad.py", "from graphcheck.engine import fixes", "bundled alone imports the engine"),
        ("harness/bad.py", "from graphcheck import engine", "bundled alone imports the engine"),
        ("harness/judging/bad.py", "from graphcheck.harness.records import store", "judging is not above records"),
        ("harness/files/bad.py", "from graphcheck.harness import doctor", "files is not above harness"),
        ("cli/bad.py", "def f():\n    import pandas", "cli does without pandas"),
        ("__main__.py", "import graphcheck.engine.fixes", "bundled alone imports the engine"),
        ("__main__.py", "import transformers", "cli does without transformers"),
        ("report/bad.py", "from graphcheck.cli import app", "report is not above cli"),
        ("report/bad.py", "import torch", "report does without torch"),
        ("targets/bad.py", "from graphcheck.harness.planning import plan", "targets is not above harness"),
        ("targets/bad.py", "from graphcheck.engine.fixes import FIXES", "bundled alone imports the engine"),
        ("targets/bundledish.py", "import graphcheck.engine.fixes", "bundled alone imports the engine"),
        ("engine/bad.py", "from graphcheck.schema import events", "engine is not above schema"),
        ("engine/bad.py", "from graphcheck import __version__", "could be lifted out whole"),
        ("engine/bad.py", "from graphcheck import shipped", "engine is not above shipped"),
        ("engine/bad.py", "import transformers", "engine does without transformers"),
        ("engine/__init__.py", "VERSION = 1", "must be empty"),
        ("engine/fixes.py", "import torch", "engine.fixes: loads torch through graphcheck.engine.fixes -> torch"),
        ("engine/scheduler.py", "def f():\n    import torch", "engine.scheduler: loads torch"),
        ("schema/bad.py", "import numpy", "schema does without numpy"),
        ("schema/bad.py", "import attrs", "schema knows the standard library and pydantic"),
        ("schema/bad.py", "from graphcheck import shipped", "schema is not above shipped"),
        ("models/bad.py", "from graphcheck.harness.planning import plan", "models is not above harness"),
        ("shipped.py", "from graphcheck.schema import base", "shipped is not above schema"),
        ("__init__.py", "from graphcheck.schema import base", "the root module imports nothing"),
        ("utils/__init__.py", "", "utils is no layer"),
    ],
)
def test_a_planted_violation_is_found(tree: Path, file: str, source: str, expected: str) -> None:
    (tree / file).parent.mkdir(exist_ok=True)
    (tree / file).write_text(source)
    found = violations(tree)
    assert found
    assert all(expected in violation for violation in found), found


def test_torch_behind_another_engine_module_is_found(tree: Path) -> None:
    (tree / "engine" / "layers.py").write_text("import torch")
    (tree / "engine" / "request.py").write_text("from graphcheck.engine.layers import Linear")
    (tree / "engine" / "blocks.py").write_text("from graphcheck.engine import request")
    assert [violation.split(":")[0] for violation in violations(tree)] == [
        "graphcheck.engine.blocks",
        "graphcheck.engine.request",
    ]


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("targets/bundled/good.py", "from graphcheck.engine import fixes"),
        ("harness/good.py", "from graphcheck import __version__, shipped\nfrom graphcheck.targets import base"),
        (
            "harness/records/good.py",
            "from graphcheck.harness.judging import judge\nfrom graphcheck.harness.records import a",
        ),
        ("harness/good.py", "from graphcheck.harness.golden import regen"),
        ("report/good.py", "import pandas\nfrom graphcheck.harness.planning import plan"),
        ("engine/good.py", "import torch\nfrom graphcheck.engine import fixes"),
        ("models/good.py", "import torch\nimport transformers"),
    ],
)
def test_what_the_layers_allow(tree: Path, file: str, source: str) -> None:
    (tree / file).parent.mkdir(exist_ok=True)
    (tree / file).write_text(source)
    assert violations(tree) == []


DESCRIBE_ALL = """\
import sys, {names}
from graphcheck.targets.registry import TARGETS, load_target
for name in TARGETS:
    load_target(name).describe()
print(sorted({{"torch", "transformers", "pandas"}} & set(sys.modules)))
"""


def test_the_harness_and_what_targets_say_of_themselves_load_no_engine_library() -> None:
    """What the source cannot show: a library that imports another one behind our back."""
    names = sorted(name for name in modules(PACKAGE) if layer(name) in ("harness", "schema", "shipped"))
    program = DESCRIBE_ALL.format(names=", ".join(names))
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (shown.stdout, shown.stderr) == ("[]\n", "")
