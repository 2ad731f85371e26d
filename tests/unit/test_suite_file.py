"""Suite files: where they are found, what is refused, and what their hash covers."""

from pathlib import Path

import pytest

from graphcheck.harness.files.suite_file import load_suite
from graphcheck.schema.errors import SuiteError

GOOD = """\
name = "s"
title = "for people"
stop = { fraction = 0.25, seed = 7 }

[[prompts]]
id = "a"
text = "one = two"
max_new_tokens = 4

[[prompts]]
id = "b"
ids = [1, 2]
arrival = 3
max_new_tokens = 5
"""


def write(folder: Path, text: str, name: str = "s") -> Path:
    """Writes the suite beside a matrix, whose path is returned."""
    (folder / "suites").mkdir(exist_ok=True)
    (folder / "suites" / f"{name}.toml").write_text(text)
    return folder / "m.toml"


def sha(folder: Path, text: str) -> str:
    return load_suite("s", write(folder, text)).sha


def test_a_good_file(tmp_path: Path) -> None:
    suite = load_suite("s", write(tmp_path, GOOD)).suite
    assert [prompt.id for prompt in suite.prompts] == ["a", "b"]
    assert suite.prompts[0].text == "one = two"
    assert suite.prompts[1].arrival == 3
    assert suite.stop is not None
    assert suite.stop.seed == 7


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("arrival = 3", "arival = 3", 13, ["prompts[1].arival", "unknown key", "id, text, ids, arrival"]),
        ("arrival = 3", "arrival = -1", 13, ["prompts[1].arrival = -1", "greater than or equal to 0"]),
        ("max_new_tokens = 4\n", "", 5, ["prompts[0].max_new_tokens", "required"]),
        ("max_new_tokens = 4", 'max_new_tokens = "4"', 8, ["valid integer"]),
        ("ids = [1, 2]", "", 10, ["prompts[1]", "exactly one of `text` and `ids`"]),
        ("ids = [1, 2]", "ids = []", 10, ["prompts[1]", "empty"]),
        ("ids = [1, 2]", "ids = [1, 2.5]", 12, ["prompts[1].ids[1] = 2.5"]),
        ("seed = 7", "sead = 7", 3, ["stop.sead", "unknown key", "fraction, seed"]),
        ("fraction = 0.25", "fraction = 1.0", 3, ["stop.fraction = 1.0", "less than 1"]),
        ('id = "b"', 'id = "B!"', 11, ['prompts[1].id = "B!"', "pattern"]),
        ('name = "s"', 'name = "other"', 1, ['name = "other"', "the file's name says 's'"]),
    ],
)
def test_a_wrong_value_is_named_with_its_line(tmp_path: Path, old: str, new: str, line: int, words: list[str]) -> None:
    with pytest.raises(SuiteError) as caught:
        load_suite("s", write(tmp_path, GOOD.replace(old, new)))
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/suites/s.toml:{line}: ")
    assert all(word in message for word in words), message


def test_a_prompt_id_given_twice(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="prompt id 'a' is given twice"):
        load_suite("s", write(tmp_path, GOOD.replace('id = "b"', 'id = "a"')))


def test_beside_the_matrix_comes_before_the_shipped_one(tmp_path: Path) -> None:
    matrix = write(tmp_path, GOOD.replace('name = "s"', 'name = "twelve"'), "twelve")
    assert load_suite("twelve", matrix).path.parent == tmp_path / "suites"


def test_an_unknown_suite_lists_what_there_is(tmp_path: Path) -> None:
    matrix = write(tmp_path, GOOD)
    with pytest.raises(SuiteError, match=rf"suite 'x': not in {tmp_path}/suites nor in .*choose one of .*\bs\b"):
        load_suite("x", matrix)
    with pytest.raises(SuiteError, match="a suite is given by name"):
        load_suite("../s", matrix)


def test_the_hash_covers_what_decides_tokens_and_nothing_else(tmp_path: Path) -> None:
    before = sha(tmp_path, GOOD)
    assert sha(tmp_path, GOOD.replace("for people", "for other people")) == before
    assert sha(tmp_path, GOOD.replace("arrival = 3", "arrival = 3  # comment")) == before
    assert sha(tmp_path, GOOD.replace("max_new_tokens = 4", "max_new_tokens = 4\narrival = 0")) == before
    changed = [
        GOOD.replace("one = two", "one = three"),
        GOOD.replace("arrival = 3", "arrival = 4"),
        GOOD.replace("max_new_tokens = 5", "max_new_tokens = 6"),
        GOOD.replace("seed = 7", "seed = 8"),
        GOOD.replace("stop = {", "passes = 2\nstop = {"),
    ]
    assert len({before, *(sha(tmp_path, text) for text in changed)}) == len(changed) + 1
