"""Matrix files: what is read, and that every wrong thing is one error with file, line, key and choices."""

from pathlib import Path

import pytest

from graphcheck.harness.files.matrix_file import load_matrix
from graphcheck.harness.files.toml_lines import key_lines, line_of
from graphcheck.schema.errors import MatrixError

GOOD = """\
# a comment with [brackets] = and "quotes"
title = "t"
models = ["probe"]
suites = ["twelve"]

[axes]
tp = [
  1,
  2,
]
graph = ["off", "on"]

[[extra_cells]]
tp = 4
graph = "on"
shapes = "exact"

[settings]
lanes = 8

[policy]
expect_fallback = ["kv_dtype"]
"""


def write(folder: Path, text: str) -> str:
    path = folder / "m.toml"
    path.write_text(text)
    return str(path)


def failure(folder: Path, text: str) -> MatrixError:
    with pytest.raises(MatrixError) as caught:
        load_matrix(write(folder, text))
    return caught.value


def test_a_good_file_keeps_the_order_of_its_axes(tmp_path: Path) -> None:
    loaded = load_matrix(write(tmp_path, GOOD))
    assert loaded.name == "m"
    assert list(loaded.matrix.axes.items()) == [("tp", (1, 2)), ("graph", ("off", "on"))]
    assert loaded.matrix.extra_cells == ({"tp": 4, "graph": "on", "shapes": "exact"},)
    assert loaded.matrix.axis_names == ("tp", "graph", "shapes")
    assert loaded.matrix.settings == {"lanes": 8}
    assert loaded.matrix.policy.expect_fallback == ("kv_dtype",)
    assert loaded.matrix.target == "bundled"


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ('title = "t"', 'titel = "t"', 2, ["titel", "unknown key", "title, target, models"]),
        ('models = ["probe"]', 'model = ["probe"]', 3, ["model", "unknown key"]),
        ("expect_fallback", "expect", 22, ["policy.expect", "unknown key", "choose one of expect_fallback"]),
        ('title = "t"', "title = 3", 2, ["title = 3", "valid string"]),
        ('graph = ["off", "on"]', "graph = [true]", 11, ["axes.graph[0] = true", "integer", "string"]),
        ('graph = ["off", "on"]', "graph = [1.5]", 11, ["axes.graph[0] = 1.5", "integer", "string"]),
        ("lanes = 8", "lanes = 8.0", 19, ["settings.lanes = 8.0"]),
        ('graph = ["off", "on"]', "graph = []", 11, ["axes.graph = []", "at least one value"]),
        ('graph = ["off", "on"]', 'graph = ["on", "on"]', 11, ["axes.graph", "twice"]),
        ('models = ["probe"]', 'models = ["probe", "probe"]', 3, ["models", "twice"]),
        ('models = ["probe"]', "models = []", 3, ["models = []", "at least 1 item"]),
        ("lanes = 8", "tp = 1", 19, ["settings.tp", "also an axis"]),
        ('graph = ["off", "on"]', 'suite = ["a"]', 11, ["axes.suite", "`suites` makes this axis"]),
        ("tp = 4", "tp = 4.0", 14, ["extra_cells[0].tp = 4.0", "integer", "string"]),
        ("tp = 4\n", "", 13, ["extra_cells[0]", "gives every axis, tp too"]),
        ("tp = 4", 'tp = 4\nmodel = "probe"', 15, ["extra_cells[0].model", "run with every model and suite"]),
        ('title = "t"', "format = 2", 2, ["format = 2", "less than or equal to 1"]),
    ],
)
def test_a_wrong_value_is_named_with_its_line(tmp_path: Path, old: str, new: str, line: int, words: list[str]) -> None:
    message = str(failure(tmp_path, GOOD.replace(old, new)))
    assert message.startswith(f"{tmp_path}/m.toml:{line}: ")
    assert all(word in message for word in words), message
    assert "\n" not in message


def test_a_missing_key_is_named_without_a_line(tmp_path: Path) -> None:
    message = str(failure(tmp_path, GOOD.replace('suites = ["twelve"]\n', "")))
    assert message == f"{tmp_path}/m.toml: suites: this key is required; add it"


def test_wrong_syntax_names_the_line(tmp_path: Path) -> None:
    error = failure(tmp_path, GOOD.replace('title = "t"', 'title = "t'))
    assert error.value == f"{tmp_path}/m.toml:2"
    assert error.rule.startswith("not TOML")


def test_a_file_that_is_no_utf8_or_no_file(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'title = "\xe9"')
    with pytest.raises(MatrixError, match=r"latin\.toml: byte 9: TOML is UTF-8"):
        load_matrix(str(tmp_path / "latin.toml"))
    with pytest.raises(MatrixError, match="cannot be read"):
        load_matrix(str(tmp_path / "none.toml"))
    with pytest.raises(MatrixError, match="cannot be read"):
        load_matrix(str(tmp_path))


def test_an_unknown_name_lists_the_shipped_ones() -> None:
    with pytest.raises(MatrixError, match=r"matrix 'nightly': no shipped matrix has that name; choose one of default"):
        load_matrix("nightly")


def test_lines_are_found_in_every_way_to_write_a_key() -> None:
    text = '''\
a.b = 1
"quoted key" = 2
text = """
fake = 1
[fake]
"""
nested = [
  [1],
  ["x = 1"],  # y = 2
]
[t] # comment
c = { d = 1 }
[[list]]
e = "]["
[[list]]
e = 2
[list.sub]
f = 3
'''
    assert key_lines(text) == {
        ("a", "b"): 1,
        ("quoted key",): 2,
        ("text",): 3,
        ("nested",): 7,
        ("t",): 11,
        ("t", "c"): 12,
        ("list",): 13,
        ("list", 0): 13,
        ("list", 0, "e"): 14,
        ("list", 1): 15,
        ("list", 1, "e"): 16,
        ("list", 1, "sub"): 17,
        ("list", 1, "sub", "f"): 18,
    }
    assert line_of(text, ("t", "c", "d")) == 12
    assert line_of(text, ("list", 1, "nothing")) == 15
    assert line_of(text, ("nothing",)) is None
