"""Goldens that no accident makes: red cells by exit 6, in a line that they share; the golden stays as it is."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from graphcheck.harness.records.run_folder import load_run
from tests.fake_world import FakeWorld
from tests.in_process import make_call

Spoil = Callable[[bytes], bytes]


def lines(content: bytes) -> list[bytes]:
    return content.splitlines(keepends=True)


def signed(content: bytes) -> bytes:
    """With a header that agrees with the body again, as a tool would leave it that knows the format."""
    first, *body = lines(content)
    header = json.loads(first) | {"body_sha": hashlib.sha256(b"".join(body)).hexdigest()}
    return json.dumps(header).encode() + b"\n" + b"".join(body)


def header(**changes: object) -> Spoil:
    def spoil(content: bytes) -> bytes:
        first, *body = lines(content)
        return json.dumps(json.loads(first) | changes).encode() + b"\n" + b"".join(body)

    return spoil


def in_body(old: bytes, new: bytes) -> Spoil:
    def spoil(content: bytes) -> bytes:
        first, _, body = content.partition(b"\n")
        assert old in body
        return first + b"\n" + body.replace(old, new, 1)

    return spoil


GOLDENS: dict[str, tuple[Spoil, str]] = {
    "cut off after its header": (lambda content: lines(content)[0], ": 0 prompts: line 1 says 3; "),
    "a margin edited": (in_body(b"4.0", b"4.5"), ": body sha256 "),
    "a prompt twice": (lambda content: signed(b"".join([*lines(content)[:3], lines(content)[2]])), "not the suite's "),
    "a step missing": (
        lambda content: signed(in_body(b'{"top":[[20,4.0],[21,1.5]]},', b"")(content)),
        "but 11 steps; ",
    ),
    "a step without ids": (
        lambda content: signed(in_body(b"[[20,4.0],[21,1.5]]", b"[]")(content)),
        ":2: not a prompt (",
    ),
    "ids as text": (
        lambda content: signed(in_body(b'"ids":[20,', b'"ids":["x",')(content)),
        ":2: not a prompt (ids.0: ",
    ),
    "other prompt ids": (
        lambda content: signed(in_body(b"[3,14,15]", b"[3,14,16]")(content)),
        "its prompt_ids are not ",
    ),
    "a path for a name": (header(model_name="../../elsewhere"), ": it calls itself that of ../../elsewhere/trio; "),
    "another suite's name": (header(suite="duo"), ": it calls itself that of toy/duo; "),
    "no format": (header(format=None), ": format None: this version reads formats 1 and 2; "),
    "an unknown key": (header(speed=9), ":1: not a golden's header (speed: "),
    "no JSON": (lambda content: b"golden\n" + content, ":1: not a golden's header ("),
    "a list": (lambda content: b"[]\n" + content, ":1: not a golden's header ("),
    "deep JSON": (lambda content: b"[" * 100_000 + b"\n" + content, ":1: not a golden's header ("),
    "a huge number": (lambda content: b"9" * 5_000 + b"\n" + content, ":1: not a golden's header ("),
    "UTF-16": (lambda content: content.decode().encode("utf-16"), ": "),
    "bytes": (lambda content: bytes(range(256)) + b"\n", ": "),
}


@pytest.mark.parametrize("what", GOLDENS)
def test_a_golden(
    what: str, fake_world: FakeWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, reason = GOLDENS[what]
    golden = fake_world.golden_file
    golden.write_bytes(spoiled := spoil(golden.read_bytes()))
    assert_red(fake_world, make_call(monkeypatch, capsys), "STALE", reason)
    assert golden.read_bytes() == spoiled


def test_a_folder_where_a_golden_should_be(
    fake_world: FakeWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_world.golden_file.unlink()
    fake_world.golden_file.mkdir()
    assert_red(
        fake_world,
        make_call(monkeypatch, capsys),
        "MISSING",
        f"make it with `graphcheck golden regen {fake_world.path / 'm.toml'}`",
    )


def assert_red(world: FakeWorld, call: Callable[..., object], verdict: str, reason: str) -> None:
    """Both cells, by exit 6, in a line that they share; the record says the same, and nothing ran."""
    ended = call("run", "matrix", str(world.matrix(graph=["off", "on"])), "--run-dir", "out")
    assert (ended.code, ended.err) == (6, "")
    told = [line for line in ended.out.splitlines() if line.startswith(f"graph_off, graph_on  {verdict}: ")]
    assert len(told) == 1, ended.out
    assert reason in told[0]
    run = load_run(Path("out"))
    assert run.info.exit_code == 6
    assert {attempt.finished.reason in told[0] for attempt in run.attempts if attempt.finished} == {True}
    assert sorted(path.name for path in Path("out").iterdir()) == ["attempts", "cells.jsonl", "run.json"]
    assert not list(Path("out", "attempts").iterdir())
