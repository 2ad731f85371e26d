"""Matrix, suite and golden files that chance has changed: whatever they hold, no error is internal."""

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphcheck.report.console import render
from graphcheck.report.terminal import Terminal
from graphcheck.schema.errors import GraphcheckError
from graphcheck.schema.exit_codes import ExitCode
from tests.fake_world import FakeWorld, make_world, write_golden_of

quick = settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(max_value=130)  # a suite may well ask for more passes than a test has time for
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        ["tp", "graph", "on", "off", "fake", "toy", "trio", "one", "..", "/", "\n", "x" * 300, "1,2", "-1"]
    )
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=2)
)
MATRIX = {
    "target": "fake",
    "models": ["toy"],
    "suites": ["trio"],
    "axes": {"tp": [1, 2], "graph": ["off", "on"]},
    "extra_cells": [{"tp": 4, "graph": "on", "lanes": 2}],
    "settings": {"buckets": "1,2"},
    "policy": {"expect_fallback": ["kv_dtype"]},
}
SUITE = {
    "name": "trio",
    "passes": 1,
    "stop": {"fraction": 0.1, "seed": 7},
    "prompts": [
        {"id": "one", "ids": [3, 14, 15], "max_new_tokens": 12},
        {"id": "two", "ids": [92, 65], "max_new_tokens": 9, "arrival": 2},
        {"id": "three", "ids": [35, 89, 79, 32], "max_new_tokens": 5},
    ],
}
REMOVED = object()


def places(value: Any, here: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place in a document, the document itself left out."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in inside for place in ((*here, key), *places(inner, (*here, key)))]


@st.composite
def changed(draw: st.DrawFn, document: dict[str, Any]) -> dict[str, Any]:
    """The document with up to three values replaced, removed or added."""
    document = json.loads(json.dumps(document))
    for _ in range(draw(st.integers(1, 3))):
        found = places(document)
        *path, last = draw(st.sampled_from(found)) if found else ("new",)
        owner: Any = document
        for key in path:
            owner = owner[key]
        value = draw(VALUES | st.just(REMOVED))
        if value is not REMOVED:
            owner[draw(st.text(max_size=4)) if isinstance(owner, dict) and draw(st.booleans()) else last] = value
        else:
            del owner[last]
    return document


@st.composite
def mangled(draw: st.DrawFn, content: bytes) -> bytes:
    """The bytes with a stretch of them replaced by others, or by a copy of another stretch."""
    begin, end = sorted(draw(st.tuples(*[st.integers(0, len(content))] * 2)))
    end = min(end, begin + draw(st.integers(0, 40)))
    copied = draw(st.integers(0, len(content)))
    new = draw(st.binary(max_size=12) | st.sampled_from([content[copied : copied + 30], b"\n", b'"""', b"[" * 3000]))
    return content[:begin] + new + content[end:]


def toml(document: dict[str, Any]) -> str:
    """The document as TOML; a null has no form there and is left out."""
    return "".join(f"{json.dumps(key)} = {_toml(value)}\n" for key, value in document.items() if value is not None)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        inside = ", ".join(f"{json.dumps(key)} = {_toml(inner)}" for key, inner in value.items() if inner is not None)
        return f"{{{inside}}}"
    if isinstance(value, list):
        return f"[{', '.join(_toml(inner) for inner in value if inner is not None)}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeWorld:
    """A fresh world whose matrix, suite and golden are green together."""
    monkeypatch.chdir(tmp_path)
    world = make_world(tmp_path)
    (tmp_path / "m.toml").write_text(toml(MATRIX))
    assert tomllib.loads(toml(MATRIX)) == MATRIX
    return world


def assert_no_internal_error(world: FakeWorld) -> None:
    """A run of m.toml ends by a verdict or by an error of the tree, in one line, and can be shown."""
    refused: GraphcheckError | None = None
    try:
        run, code = world.run(world.path / "m.toml")
    except GraphcheckError as error:
        refused = error
    if refused is None:
        assert render(run, Terminal()) == code
    else:
        assert refused.exit_code is not ExitCode.INTERNAL
        assert str(refused).isprintable()


@quick
@given(document=changed(MATRIX))
def test_a_matrix_of_other_values(document: dict[str, Any], world: FakeWorld) -> None:
    (world.path / "m.toml").write_text(toml(document), encoding="utf-8")
    assert_no_internal_error(world)


@quick
@given(content=mangled(toml(MATRIX).encode()))
def test_a_matrix_of_other_bytes(content: bytes, world: FakeWorld) -> None:
    (world.path / "m.toml").write_bytes(content)
    assert_no_internal_error(world)


@quick
@given(document=changed(SUITE))
def test_a_suite_of_other_values(document: dict[str, Any], world: FakeWorld) -> None:
    (world.path / "suites" / "trio.toml").write_text(toml(document), encoding="utf-8")
    assert_no_internal_error(world)


@quick
@given(content=mangled(toml(SUITE).encode()))
def test_a_suite_of_other_bytes(content: bytes, world: FakeWorld) -> None:
    (world.path / "suites" / "trio.toml").write_bytes(content)
    assert_no_internal_error(world)


@quick
@given(data=st.data())
def test_a_golden_of_other_values_with_the_right_hash(data: st.DataObject, world: FakeWorld) -> None:
    header, *prompts = map(json.loads, world.golden_file.read_bytes().splitlines())
    spoiled = data.draw(changed({"header": header, "prompts": prompts}))
    body = "".join(f"{json.dumps(prompt)}\n" for prompt in spoiled.get("prompts") or ())
    first = spoiled.get("header")
    if isinstance(first, dict):
        first |= {"num_prompts": body.count("\n"), "body_sha": hashlib.sha256(body.encode()).hexdigest()}
    world.golden_file.write_text(f"{json.dumps(first)}\n{body}")
    try:
        assert_no_internal_error(world)
    finally:
        write_golden_of(world)


@quick
@given(data=st.data())
def test_a_golden_of_other_bytes(data: st.DataObject, world: FakeWorld) -> None:
    world.golden_file.write_bytes(data.draw(mangled(world.golden_file.read_bytes())))
    try:
        assert_no_internal_error(world)
    finally:
        write_golden_of(world)
