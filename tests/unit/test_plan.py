"""The plan: which attempts, in which order, with which settings; and names that the target does not have."""

from pathlib import Path

import pytest

from graphcheck.harness.files.matrix_file import LoadedMatrix, load_matrix
from graphcheck.harness.files.model_folder import open_model
from graphcheck.harness.planning.plan import Overrides, plan_attempts
from graphcheck.schema.capabilities import AxisSpec, Capabilities, FixInfo, Signature
from graphcheck.schema.errors import MatrixError, UsageError
from tests.tiny_model import make_tiny_llama

CAPABILITIES = Capabilities(
    target="toy",
    axes=(
        AxisSpec(name="tp", kind="int", default=1, choices=(1, 2, 4)),
        AxisSpec(name="graph", kind="str", default="on", choices=("off", "on")),
        AxisSpec(name="lanes", kind="int", default=8, minimum=1),
        AxisSpec(name="dtype", kind="str", default="float32"),
        AxisSpec(name="num_pages", kind="int", default=None, minimum=1),
    ),
    fixes=tuple(
        FixInfo(name=name, clause="", promise="", off_means="", signature=Signature(shows={}))
        for name in ("pad-clear", "stable-buffers")
    ),
)
MATRIX = """\
models = ["tiny"]
suites = ["s"]
[axes]
tp = [1, 2]
graph = ["off", "on"]
[settings]
lanes = 4
"""
SUITE = 'name = "{name}"\nprompts = [{{ id = "a", ids = [1], max_new_tokens = 2 }}]\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    (tmp_path / "suites").mkdir()
    for name in ("s", "t"):
        (tmp_path / "suites" / f"{name}.toml").write_text(SUITE.format(name=name))
    for name in ("tiny", "tiny2", "elsewhere/tiny"):
        make_tiny_llama(tmp_path / name, num_layers=1)
    return tmp_path


def matrix(folder: Path, text: str = MATRIX) -> LoadedMatrix:
    (folder / "m.toml").write_text(text)
    return load_matrix(str(folder / "m.toml"))


def test_cells_in_the_order_of_the_axes_with_the_first_outermost(folder: Path) -> None:
    planned = plan_attempts(matrix(folder), CAPABILITIES)
    assert [one.attempt.key for one in planned] == ["tp1-graph_off", "tp1-graph_on", "tp2-graph_off", "tp2-graph_on"]
    assert {one.suite.name for one in planned} == {"s"}
    assert {one.model.path for one in planned} == {folder / "tiny"}


def test_settings_come_from_defaults_matrix_overrides_and_cell(folder: Path) -> None:
    planned = plan_attempts(matrix(folder), CAPABILITIES)
    assert planned[2].settings == {"tp": 2, "graph": "off", "lanes": 4, "dtype": "float32"}
    assert planned[2].dtype == "float32"
    planned = plan_attempts(matrix(folder), CAPABILITIES, Overrides(settings={"lanes": 12, "num_pages": 3}))
    assert planned[3].settings == {"tp": 2, "graph": "on", "lanes": 12, "dtype": "float32", "num_pages": 3}


def test_fixes_off_reach_every_attempt(folder: Path) -> None:
    planned = plan_attempts(matrix(folder), CAPABILITIES, Overrides(fixes_off=("pad-clear",)))
    assert planned[0].attempt.key == "tp1-graph_off.no-pad-clear"
    assert {one.attempt.fixes_off for one in planned} == {("pad-clear",)}


def test_several_models_and_suites_become_the_outer_axes(folder: Path) -> None:
    text = MATRIX.replace('["tiny"]', '["tiny", "tiny2"]').replace('["s"]', '["s", "t"]')
    planned = plan_attempts(matrix(folder, text), CAPABILITIES)
    assert len(planned) == 16
    assert planned[0].attempt.key == "model_tiny-suite_s-tp1-graph_off"
    assert planned[-1].attempt.key == "model_tiny2-suite_t-tp2-graph_on"
    assert [(one.model.name, one.suite.name) for one in planned[::4]] == [
        ("tiny", "s"),
        ("tiny", "t"),
        ("tiny2", "s"),
        ("tiny2", "t"),
    ]
    assert "model" not in planned[0].settings


EXTRA = (
    MATRIX
    + """\
[[extra_cells]]
tp = 4
graph = "off"
dtype = "bfloat16"
[[extra_cells]]
graph = "on"
tp = 1
lanes = 2
"""
)


def test_extra_cells_follow_the_others_and_every_cell_has_their_axes(folder: Path) -> None:
    planned = plan_attempts(matrix(folder, EXTRA), CAPABILITIES)
    assert [one.attempt.key for one in planned] == [
        *(f"tp{tp}-graph_{graph}-dtype_float32-lanes4" for tp in (1, 2) for graph in ("off", "on")),
        "tp4-graph_off-dtype_bfloat16-lanes4",
        "tp1-graph_on-dtype_float32-lanes2",
    ]
    assert planned[4].settings == {"tp": 4, "graph": "off", "lanes": 4, "dtype": "bfloat16"}
    assert planned[4].dtype == "bfloat16"


def test_extra_cells_run_with_every_model(folder: Path) -> None:
    planned = plan_attempts(matrix(folder, EXTRA.replace('["tiny"]', '["tiny", "tiny2"]')), CAPABILITIES)
    assert [one.attempt.key for one in planned[4::6]] == [
        "model_tiny-tp4-graph_off-dtype_bfloat16-lanes4",
        "model_tiny2-tp4-graph_off-dtype_bfloat16-lanes4",
    ]


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("tp = 4", "tp = 3", 9, ["extra_cells[0].tp = 3", "choose one of 1, 2, 4"]),
        ('dtype = "bfloat16"', "dtyp = 1", 11, ["extra_cells[0].dtyp = 1", "no such setting"]),
        ('dtype = "bfloat16"', "num_pages = 9", 11, ["extra_cells[0].num_pages", "no value", "`settings`"]),
        ('tp = 4\ngraph = "off"\ndtype = "bfloat16"', 'tp = 2\ngraph = "on"', 8, ["extra_cells[0]", "already"]),
    ],
)
def test_a_wrong_extra_cell_is_named_with_its_line(
    folder: Path, old: str, new: str, line: int, words: list[str]
) -> None:
    with pytest.raises(MatrixError) as caught:
        plan_attempts(matrix(folder, EXTRA.replace(old, new)), CAPABILITIES)
    message = str(caught.value)
    assert message.startswith(f"{folder}/m.toml:{line}: ")
    assert all(word in message for word in words), message


def test_an_axis_of_extra_cells_cannot_be_overridden(folder: Path) -> None:
    with pytest.raises(UsageError, match="dtype is an axis of matrix m"):
        plan_attempts(matrix(folder, EXTRA), CAPABILITIES, Overrides(settings={"dtype": "bfloat16"}))


def test_a_model_override_replaces_the_matrix_models(folder: Path) -> None:
    text = MATRIX.replace('["tiny"]', '["tiny", "missing"]')
    planned = plan_attempts(matrix(folder, text), CAPABILITIES, Overrides(model=open_model(folder / "tiny2")))
    assert planned[0].attempt.key == "tp1-graph_off"
    assert {one.model.name for one in planned} == {"tiny2"}


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("graph = [", "grpah = [", 5, ["axes.grpah", "no such setting", "tp, graph, lanes, dtype"]),
        ('["off", "on"]', '["off", "no"]', 5, ['axes.graph[1] = "no"', "choose one of off, on"]),
        ("tp = [1, 2]", "tp = [1, 3]", 4, ["axes.tp[1] = 3", "choose one of 1, 2, 4"]),
        ("lanes = 4", "lane = 4", 7, ["settings.lane = 4", "no such setting"]),
        ("lanes = 4", "lanes = 0", 7, ["settings.lanes = 0", "a number, 1 or more"]),
        ("lanes = 4", 'lanes = "4"', 7, ['settings.lanes = "4"', "a number, 1 or more"]),
        ("lanes = 4", "dtype = 4", 7, ["settings.dtype = 4", "a word"]),
        ('["tiny"]', '["tiny", "elsewhere/tiny"]', 1, ['models[1] = "elsewhere/tiny"', "a second model called tiny"]),
    ],
)
def test_what_the_target_does_not_have_is_named_with_its_line(
    folder: Path, old: str, new: str, line: int, words: list[str]
) -> None:
    with pytest.raises(MatrixError) as caught:
        plan_attempts(matrix(folder, MATRIX.replace(old, new)), CAPABILITIES)
    message = str(caught.value)
    assert message.startswith(f"{folder}/m.toml:{line}: ")
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (Overrides(fixes_off=("pad",)), ["fix 'pad'", "pad-clear, stable-buffers"]),
        (Overrides(fixes_off=("pad-clear", "pad-clear")), ["named twice"]),
        (Overrides(settings={"lane": 1}), ["lane = 1", "no such setting", "tp, graph, lanes"]),
        (Overrides(settings={"lanes": 0}), ["lanes = 0", "1 or more"]),
        (Overrides(settings={"tp": 1}), ["tp = 1", "is an axis of matrix m"]),
    ],
)
def test_wrong_overrides_are_usage_errors(folder: Path, overrides: Overrides, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        plan_attempts(matrix(folder), CAPABILITIES, overrides)
    assert not isinstance(caught.value, MatrixError)
    assert all(word in str(caught.value) for word in words), str(caught.value)
