"""The golden store: the same input gives the same bytes, and no edit of a golden goes unseen."""

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcheck import shipped
from graphcheck.harness.files.golden_store import (
    golden_folders,
    golden_name,
    load_golden,
    read_golden,
    shortest_float32,
    write_golden,
)
from graphcheck.harness.files.model_folder import ModelFolder, open_model
from graphcheck.harness.files.suite_file import LoadedSuite, load_suite
from graphcheck.schema.errors import FileError, GoldenCorrupt, GoldenMissing, GoldenStale
from graphcheck.schema.golden import GoldenPrompt, GoldenStep
from tests.failing_disk import make_unreadable
from tests.tiny_model import make_tiny_llama

SUITE = """\
name = "s"
[[prompts]]
id = "a"
text = "w1 w2"
max_new_tokens = 2
[[prompts]]
id = "b"
ids = [3]
max_new_tokens = 1
"""


def float32(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


PROMPTS = (
    GoldenPrompt(
        id="a",
        prompt_ids=(1, 2),
        ids=(5, 6),
        text="w5 w6 ü\u2028",
        finish="length",
        steps=(
            GoldenStep(top=((5, float32(0.1)), (6, float32(-1 / 3)))),
            GoldenStep(top=((6, 12.0), (5, float32(1e-30))), soft=True),
        ),
    ),
    GoldenPrompt(
        id="b", prompt_ids=(3,), ids=(0,), text="<eos>", finish="stop", steps=(GoldenStep(top=((0, 2.5), (1, 1.0))),)
    ),
)


@pytest.fixture
def model(tmp_path: Path) -> ModelFolder:
    return open_model(make_tiny_llama(tmp_path / "tiny", num_layers=1))


@pytest.fixture
def suite(tmp_path: Path) -> LoadedSuite:
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "s.toml").write_text(SUITE)
    return load_suite("s", tmp_path / "m.toml")


def header(model: ModelFolder, suite: LoadedSuite, **changes: Any) -> dict[str, Any]:
    return {
        "model_name": model.name,
        "model": model.fingerprint(),
        "suite": suite.name,
        "suite_sha": suite.sha,
        "dtype": "float32",
        "reference": "a test",
        "versions": {"x": "1"},
        "made_on": "2001-01-01",
        "command": "one",
    } | changes


@pytest.fixture
def path(tmp_path: Path, model: ModelFolder, suite: LoadedSuite) -> Path:
    path = tmp_path / "golden" / "tiny" / "s.jsonl"
    assert write_golden(path, header(model, suite), PROMPTS)
    return path


def rehash(path: Path) -> None:
    first, body = path.read_bytes().split(b"\n", 1)
    fields = json.loads(first) | {"body_sha": hashlib.sha256(body).hexdigest()}
    path.write_bytes(json.dumps(fields).encode() + b"\n" + body)


def test_what_was_written_is_read_back(path: Path) -> None:
    golden = read_golden(path)
    assert golden.header.num_prompts == 2
    assert [prompt.text for prompt in golden.prompts] == [prompt.text for prompt in PROMPTS]
    assert golden.prompts[0].steps[1].soft
    for read, written in zip(golden.prompts, PROMPTS, strict=True):
        assert [[(token, float32(logit)) for token, logit in step.top] for step in read.steps] == [
            list(step.top) for step in written.steps
        ]


def test_the_same_input_gives_the_same_bytes(path: Path, model: ModelFolder, suite: LoadedSuite) -> None:
    before = path.read_bytes()
    assert b"0.1]" in before
    assert not write_golden(path, header(model, suite), PROMPTS)
    assert not write_golden(path, header(model, suite, made_on="2002-02-02", command="two"), PROMPTS)
    assert path.read_bytes() == before
    assert not write_golden(path, header(model, suite), read_golden(path).prompts)
    assert [file.name for file in path.parent.iterdir()] == ["s.jsonl"]


def test_a_golden_of_format_1_is_read_and_has_no_quorum(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"format":2', b'"format":1', 1))
    assert read_golden(path).header.quorum is None


def test_why_a_hard_change_was_accepted_stays_while_the_body_does(
    path: Path, model: ModelFolder, suite: LoadedSuite
) -> None:
    hard = {"reason": "the reference was wrong", "prompts": ["a"], "on": "2001-01-01"}
    assert write_golden(path, header(model, suite, hard=hard), PROMPTS)
    assert not write_golden(path, header(model, suite), PROMPTS)
    kept = read_golden(path).header.hard
    assert kept is not None
    assert kept.reason == "the reference was wrong"
    assert write_golden(path, header(model, suite), PROMPTS[:1])
    assert read_golden(path).header.hard is None


def test_date_and_command_change_with_the_body(path: Path, model: ModelFolder, suite: LoadedSuite) -> None:
    later = header(model, suite, made_on="2002-02-02", command="two")
    assert write_golden(path, later | {"versions": {"x": "2"}}, PROMPTS)
    read = read_golden(path).header
    assert (read.made_on, read.command, read.versions) == ("2001-01-01", "one", {"x": "2"})
    changed = (PROMPTS[0].model_copy(update={"ids": (5, 7)}), PROMPTS[1])
    assert write_golden(path, later, changed)
    read = read_golden(path).header
    assert (read.made_on, read.command) == ("2002-02-02", "two")


def test_a_corrupt_golden_is_written_anew(path: Path, model: ModelFolder, suite: LoadedSuite) -> None:
    path.write_bytes(path.read_bytes()[:-5])
    assert write_golden(path, header(model, suite, command="two"), PROMPTS)
    assert read_golden(path).header.command == "two"


def test_a_golden_folder_that_cannot_be_written(tmp_path: Path, model: ModelFolder, suite: LoadedSuite) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be written"):
        write_golden(tmp_path / "file" / "s.jsonl", header(model, suite), PROMPTS)


def test_a_golden_that_cannot_be_read_is_not_written_over_and_no_internal_error(
    path: Path, model: ModelFolder, suite: LoadedSuite
) -> None:
    make_unreadable(path)
    with pytest.raises(FileError, match=r"s\.jsonl: cannot be written \(Input/output error\)"):
        write_golden(path, header(model, suite), PROMPTS)
    assert path.is_symlink()


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_logits_keep_every_bit_in_the_fewest_digits(value: float) -> None:
    short = shortest_float32(value)
    assert struct.pack("<f", short) == struct.pack("<f", value)
    assert shortest_float32(short) == short
    assert len(repr(short)) <= len(repr(value))


def edited(old: bytes, new: bytes) -> Any:
    return lambda content: content.replace(old, new, 1)


@pytest.mark.parametrize(
    ("edit", "rule"),
    [
        (lambda content: content[:-1], "cut off"),
        (lambda content: content[: content.rindex(b"\n", 0, -1) + 1], "1 prompts: line 1 says 2"),
        (lambda content: content[: content.index(b"\n")], "cut off"),
        (lambda content: b"", "cut off"),
        (lambda content: content.replace(b"\n", b"\r\n"), "CR LF line ends"),
        (lambda content: content + b"<<<<<<< HEAD\n", ":4: a merge conflict"),
        (lambda content: content + b"=======\n", ":4: a merge conflict"),
        (edited(b'"ids":[5,6]', b'"ids":[5,7]'), "body sha256 .* line 1 says"),
        (edited(b'"format":2', b'"format":3'), "format 3: this version reads formats 1 and 2"),
        (edited(b'"format":2', b'"former":2'), "format None: this version reads formats 1 and 2"),
        (edited(b'"dtype"', b'"detype"'), ":1: not a golden's header .dtype: this key is required"),
        (lambda content: b"[]\n" + content, ":1: not a golden's header"),
        (lambda content: b"{\n" + content, ":1: not a golden's header"),
    ],
)
def test_an_edited_golden_is_corrupt(path: Path, edit: Any, rule: str) -> None:
    path.write_bytes(edit(path.read_bytes()))
    with pytest.raises(GoldenCorrupt, match=rule) as caught:
        read_golden(path)
    assert str(path) in caught.value.value


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        (b'"finish":"stop"', b'"finish":"gave up"', ":3: not a prompt .finish"),
        (b'"ids":[5,6]', b'"ids":[5,6,7]', ":2: prompt a: 3 ids but 2 steps"),
        (b'"id":"b"', b'"ib":"b"', ":3: not a prompt .id"),
        (b"2.5", b"oops", ":3: not a prompt"),
    ],
)
def test_a_rehashed_golden_that_breaks_the_schema_is_corrupt(path: Path, old: bytes, new: bytes, rule: str) -> None:
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    rehash(path)
    with pytest.raises(GoldenCorrupt, match=rule):
        read_golden(path)


def test_a_rehashed_token_is_a_golden_all_the_same(path: Path) -> None:
    """Nothing in the file can tell a wrong answer from a right one: that is for the comparison to say."""
    path.write_bytes(path.read_bytes().replace(b'"ids":[5,6]', b'"ids":[5,7]', 1))
    rehash(path)
    assert read_golden(path).prompt("a").ids == (5, 7)


def test_a_golden_for_this_model_and_suite(path: Path, model: ModelFolder, suite: LoadedSuite) -> None:
    assert load_golden(model, suite, "float32", [path.parents[1]]).prompt("b").finish == "stop"


def test_a_changed_weight_makes_it_stale(path: Path, model: ModelFolder, suite: LoadedSuite) -> None:
    weights = model.path / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(GoldenStale, match=r"s\.jsonl: made for something else: model\.weights differ"):
        load_golden(open_model(model.path), suite, "float32", [path.parents[1]])


def test_a_changed_suite_makes_it_stale(path: Path, model: ModelFolder, suite: LoadedSuite) -> None:
    suite.path.write_text(SUITE.replace("max_new_tokens = 1", "max_new_tokens = 3"))
    with pytest.raises(GoldenStale, match="suite_sha differ"):
        load_golden(model, load_suite("s", suite.path.parents[1] / "m.toml"), "float32", [path.parents[1]])


def test_a_tokenizer_that_came_or_went_makes_it_stale(path: Path, model: ModelFolder, suite: LoadedSuite) -> None:
    (model.path / "tokenizer.json").unlink()
    with pytest.raises(GoldenStale, match=r"model\.tokenizer differ"):
        load_golden(open_model(model.path), suite, "float32", [path.parents[1]])


def test_a_golden_under_the_wrong_dtype_is_stale(path: Path, model: ModelFolder, suite: LoadedSuite) -> None:
    path.rename(path.with_name("s.bfloat16.jsonl"))
    with pytest.raises(GoldenStale, match="dtype differ"):
        load_golden(model, suite, "bfloat16", [path.parents[1]])


def test_prompts_in_another_order_are_corrupt(path: Path, model: ModelFolder, suite: LoadedSuite) -> None:
    write_golden(path, header(model, suite), PROMPTS[::-1])
    with pytest.raises(GoldenCorrupt, match="prompts b, a: not the suite's prompts"):
        load_golden(model, suite, "float32", [path.parents[1]])


def test_a_missing_golden_names_the_folders_and_the_command(
    path: Path, tmp_path: Path, model: ModelFolder, suite: LoadedSuite
) -> None:
    with pytest.raises(GoldenMissing) as caught:
        load_golden(model, suite, "bfloat16", [tmp_path / "one", path.parents[1]])
    assert caught.value.value == "golden tiny/s.bfloat16.jsonl"
    assert f"{tmp_path}/one, {path.parents[1]}" in caught.value.rule
    assert "graphcheck golden regen" in caught.value.todo


def test_the_first_folder_wins_even_with_a_bad_golden(
    path: Path, tmp_path: Path, model: ModelFolder, suite: LoadedSuite
) -> None:
    first = tmp_path / "first" / golden_name("tiny", "s", "float32")
    first.parent.mkdir(parents=True)
    first.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(GoldenCorrupt):
        load_golden(model, suite, "float32", [tmp_path / "first", path.parents[1]])


def test_a_folder_that_cannot_be_looked_into_is_not_passed_over(
    path: Path, tmp_path: Path, model: ModelFolder, suite: LoadedSuite
) -> None:
    first = tmp_path / "first"
    first.symlink_to(first)
    with pytest.raises(GoldenCorrupt, match=r"first/tiny/s\.jsonl: cannot be read \(Too many levels"):
        load_golden(model, suite, "float32", [first, path.parents[1]])


def test_folders_in_order_each_once(tmp_path: Path) -> None:
    matrix = tmp_path / "m.toml"
    assert golden_folders(tmp_path / "mine", matrix) == (tmp_path / "mine", tmp_path / "golden", shipped.golden_dir())
    assert golden_folders(tmp_path / "golden", matrix) == (tmp_path / "golden", shipped.golden_dir())
    assert golden_folders(shipped.golden_dir(), matrix)[0] == shipped.golden_dir()
    assert len(golden_folders(shipped.golden_dir(), matrix)) == 2
    others = [tmp_path / folder / "m.toml" for folder in "ab"]
    assert golden_folders(tmp_path / "a" / "golden", *others) == (
        tmp_path / "a" / "golden",
        tmp_path / "b" / "golden",
        shipped.golden_dir(),
    )
