"""`golden check` and `golden list`: each thing that can be out of order, planted and found."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from graphcheck import shipped
from graphcheck.harness.files.golden_store import golden_name
from graphcheck.harness.files.matrix_file import LoadedMatrix, load_matrix
from graphcheck.harness.golden.check import Checked, check_goldens, known_matrices, list_goldens
from tests.fake_world import FakeWorld, make_world

GOLDEN = Path("golden/toy/trio.jsonl")


@pytest.fixture
def matrix(fake_world: FakeWorld, monkeypatch: pytest.MonkeyPatch) -> LoadedMatrix:
    """The one matrix and the one golden there are."""
    monkeypatch.setattr(shipped, "golden_dir", lambda: fake_world.path / "nothing shipped")
    return load_matrix(str(fake_world.matrix(graph=["off", "on"])))


def check(*matrices: LoadedMatrix) -> Checked:
    return check_goldens(None, matrices)


def test_a_world_in_order(matrix: LoadedMatrix) -> None:
    assert check(matrix) == Checked(num_files=1, num_uses=1, problems=(), unchecked=())


def rewrite(change: Callable[[bytes], bytes]) -> Callable[[], object]:
    return lambda: GOLDEN.write_bytes(change(GOLDEN.read_bytes()))


def change_suite() -> None:
    suite = Path("suites/trio.toml")
    suite.write_text(suite.read_text().replace("max_new_tokens = 9", "max_new_tokens = 8"))


@pytest.mark.parametrize(
    ("plant", "problem"),
    [
        (GOLDEN.unlink, "golden toy/trio.jsonl: not in golden"),
        (rewrite(lambda content: content[:-1]), "golden/toy/trio.jsonl: cut off"),
        (lambda: Path("toy/model.safetensors").write_bytes(b"others"), "made for something else: model.weights differ"),
        (change_suite, "made for something else: suite_sha differ"),
        (lambda: GOLDEN.with_name("old.jsonl").write_bytes(GOLDEN.read_bytes()), "old.jsonl: no known matrix uses it"),
        (lambda: GOLDEN.with_name("x.jsonl.pending").write_bytes(b""), "x.jsonl.pending: not reviewed"),
    ],
)
def test_each_thing_out_of_order_is_one_line(matrix: LoadedMatrix, plant: Callable[[], object], problem: str) -> None:
    plant()
    checked = check(matrix)
    assert len(checked.problems) == 1
    assert problem in checked.problems[0]
    assert "\n" not in checked.problems[0]


def test_a_golden_of_another_dtype_is_used_only_by_a_matrix_of_that_dtype(
    matrix: LoadedMatrix, fake_world: FakeWorld
) -> None:
    other = fake_world.path / "b.toml"
    other.write_text(matrix.path.read_text().replace("[settings]", '[settings]\ndtype = "bfloat16"'))
    [problem] = check(matrix, load_matrix(str(other))).problems
    assert problem.startswith("golden toy/trio.bfloat16.jsonl: not in golden")


def test_a_model_that_must_be_made_first_is_said_not_to_be_checked(matrix: LoadedMatrix) -> None:
    text = matrix.path.read_text().replace('models = ["toy"]', 'models = ["toy", "smollm2"]')
    matrix.path.write_text(text)
    checked = check(load_matrix(str(matrix.path)))
    assert checked.problems == ()
    assert len(checked.unchecked) == 1
    assert "models add smollm2" in checked.unchecked[0]


def test_the_list_says_what_each_golden_holds_and_who_uses_it(matrix: LoadedMatrix) -> None:
    GOLDEN.with_name("cut.jsonl").write_bytes(b"cut")
    GOLDEN.with_name("trio.jsonl.pending").write_bytes(b"")
    cut, trio = list_goldens(None, [matrix])
    assert (cut.golden, cut.matrices, cut.is_pending) == (None, (), False)

    assert "cut off" in str(cut.problem)
    assert trio.golden is not None
    assert (len(trio.golden.prompts), trio.matrices, trio.is_pending) == (3, ("m",), True)


def test_goldens_beside_a_matrix_are_listed_and_are_its_own(matrix: LoadedMatrix, fake_world: FakeWorld) -> None:
    for folder in ("mine", "other"):
        (fake_world.path / folder).mkdir()
    other = make_world(fake_world.path / "other").matrix(graph=["off"]).rename("other/n.toml")
    listed = list_goldens(Path("mine"), [matrix, load_matrix(str(other))])
    assert [(one.path.parents[2].name, one.matrices) for one in listed] == [
        (fake_world.path.name, ("m",)),
        ("other", ("n",)),
    ]


def test_the_shipped_goldens_are_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    checked = check_goldens(None, known_matrices([]))
    assert checked.problems == ()
    assert checked.num_files == len(list(shipped.golden_dir().glob("*/*.jsonl")))


def test_every_shipped_golden_of_a_shipped_model_has_a_quorum() -> None:
    for folder in sorted(config.parent for config in shipped.models_dir().glob("*/config.json")):
        for path in sorted((shipped.golden_dir() / folder.name).glob("*.jsonl")):
            header = json.loads(path.read_bytes().partition(b"\n")[0])
            assert header["quorum"]["noise"] > 0, path
            assert golden_name(header["model_name"], header["suite"], header["dtype"]) == Path(folder.name, path.name)
