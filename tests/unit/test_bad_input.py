"""What a user can get wrong before anything starts: one line, exit 2, and the folder as it was."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fake_world import FakeWorld
from tests.in_process import Call, make_call

MATRIX = """\
target = "fake"
models = ["toy"]
suites = ["trio"]
[axes]
tp = [1, 2]
graph = ["off", "on"]
[settings]
lanes = 4
[policy]
expect_fallback = ["kv_dtype"]
"""

OPTIONS = {
    "run matrix nowhere": "matrix 'nowhere': no shipped matrix has that name; choose one of ",
    "run matrix nowhere.toml": "nowhere.toml: cannot be read (No such file or directory); ",
    "run matrix suites/": "matrix 'suites/': no shipped matrix has that name; ",
    "run matrix toy/../suites": "toy/../suites: cannot be read (Is a directory); ",
    "run matrix toy/config.json": "toy/config.json:1: not TOML (",
    "run matrix m.toml --set lanes": "--set lanes: a setting is written key=value; ",
    "run matrix m.toml --set =4": "--set =4: a setting is written key=value; ",
    "run matrix m.toml --set lanes=": "--set lanes=: a setting is written key=value; ",
    "run matrix m.toml --set speed=9": "speed = 9: target fake has no such setting; choose one of tp, ",
    "run matrix m.toml --set fault=flood": "fault = flood: not a value of fault; choose one of none, ",
    "run matrix m.toml --set lanes=many": "lanes = many: lanes is a number, 1 or more; ",
    "run matrix m.toml --set lanes=0": "lanes = 0: lanes is a number, 1 or more; ",
    "run matrix m.toml --set lanes=-3": "lanes = -3: lanes is a number, 1 or more; ",
    "run matrix m.toml --set lanes=2.5": "lanes = 2.5: lanes is a number, 1 or more; ",
    "run matrix m.toml --set lanes=²": "lanes = ²: lanes is a number, 1 or more; ",
    f"run matrix m.toml --set lanes={'9' * 5000}": "lanes = 9999",
    "run matrix m.toml --set lanes=2 --set lanes=3": "--set lanes=3: lanes is given a value already; ",
    "run matrix m.toml --lanes 2 --set lanes=3": "--set lanes=3: lanes is given a value already; ",
    "run matrix m.toml --set tp=4": "tp = 4: tp is an axis of matrix m; ",
    "run matrix m.toml --set buckets=8,none": "buckets = '8,none': positive numbers joined by commas; ",
    "run matrix m.toml --audit": "audit = on: target fake has no such setting; ",
    "run matrix m.toml --disable-fix typo": "fix 'typo': target fake has no such fix; choose one of refresh, sync",
    "run matrix m.toml --disable-fix sync --disable-fix sync": "fixes sync, sync: a fix is named twice; ",
    "run matrix m.toml --model nowhere": "model 'nowhere': no such folder; give a folder, or a shipped model: ",
    f"run matrix m.toml --model {'n' * 300}": "model 'nnn",
    "run matrix m.toml --model suites": "{here}/suites/config.json: cannot be read (No such file or directory); ",
    "run matrix m.toml --golden-dir nowhere": "--golden-dir nowhere: no such folder; correct it, or leave it out",
    "run matrix m.toml --golden-dir m.toml": "--golden-dir m.toml: no such folder",
    "run matrix m.toml --require-backend banana": "--require-backend banana: target fake never replays graphs on it; ",
    "run matrix m.toml -k tp=3": "-k 'tp=3': axis tp has no value '3'; ",
    "run matrix m.toml -k kv=paged": "-k 'kv=paged': no cell has an axis 'kv'; ",
    "run matrix m.toml -k gpu": "-k 'gpu': 'gpu' is in no cell's name; ",
    "run matrix m.toml -k (tp=2": "-k '(tp=2': a parenthesis is not closed; ",
    "run matrix m.toml -k tp2-graph_off=on": "-k 'tp2-graph_off=on': 'tp2-graph_off=on' is in no cell's name; ",
    "run matrix m.toml --run-dir m.toml": "m.toml: cannot be used (File exists); ",
    "run matrix m.toml --run-dir toy": "toy: a run needs an empty folder; ",
    "run matrix m.toml --run-dir m.toml/run": "m.toml/run: cannot be used (Not a directory); ",
    "run matrix m.toml --run-dir /proc/run": "/proc/run: cannot be used (No such file or directory); ",
    f"run matrix m.toml --run-dir {'n' * 300}": "nnn",
    "ablate nowhere": "matrix 'nowhere': no shipped matrix has that name; ",
    "ablate m.toml --fix typo": "--fix typo: target fake has no such fix; choose one of refresh, sync",
    "ablate m.toml --golden-dir nowhere": "--golden-dir nowhere: no such folder",
    "ablate m.toml --expect hang": "--expect hang: not in the signature of any selected fix; choose one of HANG",
    "ablate m.toml --expect SKIPPED": "--expect SKIPPED: not in the signature of any selected fix; ",
    "ablate m.toml --fix refresh --expect HANG": "--expect HANG: not in the signature of any selected fix; ",
    "ablate m.toml --delay 20ms": "--delay 20ms: a delay has no part '20ms'; write it like ",
    "ablate m.toml --delay rank=0,site=layers.0,ms=nan": "--delay rank=0,site=layers.0,ms=nan: ms: ",
    "ablate m.toml --delay rank=2,site=layers.0,ms=1": "--delay rank=2,site=layers.0,ms=1: no cell has a rank 2; ",
    "ablate m.toml --delay rank=0,site=layers.2,ms=1": "--delay rank=0,site=layers.2,ms=1: no model has a layer 2; ",
    "ablate m.toml --delay rank=0,site=attic,ms=1": "--delay rank=0,site=attic,ms=1: target 'fake' has no such site; ",
    "report nowhere": "nowhere/run.json: cannot be read (No such file or directory); ",
    "report m.toml": "m.toml/run.json: cannot be read (Not a directory); ",
    "golden regen nowhere": "matrix 'nowhere': no shipped matrix has that name; ",
    "golden check --golden-dir nowhere": "--golden-dir nowhere: no such folder; ",
    "golden list --golden-dir nowhere": "--golden-dir nowhere: no such folder; ",
    "golden diff --golden-dir nowhere": "--golden-dir nowhere: no such folder; ",
    "golden accept nowhere": "nowhere: nothing is pending there; ",
    "golden check --matrix nowhere": "matrix 'nowhere': no shipped matrix has that name; ",
    "models add banana": "model 'banana': ",
}

# (what to replace, by what) -> the line and what is said of it
MATRICES = {
    ("tp = [1, 2]", "tp = [1, 2"): "m.toml:6: not TOML (",
    ("lanes = 4", "lanes = 4\n\tpages ="): "m.toml:9: not TOML (",
    ("lanes = 4", f"lanes = {'9' * 5000}"): "m.toml: not TOML (",
    ("[1, 2]", f"{'[' * 5000}1{']' * 5000}"): "m.toml: not TOML (",
    ('target = "fake"', 'target = "banana"'): "target 'banana': no such target; choose one of bundled, ",
    ('target = "fake"', "target = 3"): "m.toml:1: target = 3: the value should be a valid string; ",
    ("models =", "model ="): "m.toml:2: model = ",
    ('["toy"]', "[]"): "m.toml:2: models = []: ",
    ('["toy"]', '["nowhere"]'): "model 'nowhere': no such folder; ",
    ('["toy"]', '["toy", "toy"]'): 'm.toml:2: models = ["toy", "toy"]: an entry is given twice; ',
    ('["toy"]', '["to\\u0000y"]'): "model 'to\\x00y': no such folder; ",
    ('["trio"]', '["quartet"]'): "suite 'quartet': not in suites nor in ",
    ('["trio"]', '["../suites/trio"]'): "suite '../suites/trio': a suite is given by name; ",
    ('["trio"]', f'["{"s" * 300}"]'): "suite 'sss",
    ("tp = [1, 2]", "tp = []"): "m.toml:5: axes.tp = []: an axis needs at least one value; ",
    ("tp = [1, 2]", "tp = 2"): "m.toml:5: axes.tp = 2: ",
    ("tp = [1, 2]", "tp = [1, 1]"): "m.toml:5: axes.tp = [1, 1]: a value is given twice; ",
    ("tp = [1, 2]", "tp = [1, 3]"): "m.toml:5: axes.tp[1] = 3: not a value of tp; choose one of 1, 2, 4",
    ("tp = [1, 2]", "tp = [true]"): "m.toml:5: axes.tp[0] = true: ",
    ("tp = [1, 2]", 'tp = ["1"]'): 'm.toml:5: axes.tp[0] = "1": not a value of tp; ',
    ("tp = [1, 2]", "pp = [1, 2]"): "m.toml:5: axes.pp = [1, 2]: target fake has no such setting; ",
    ("tp = [1, 2]", 'suite = ["trio"]'): 'm.toml:5: axes.suite = ["trio"]: `suites` makes this axis; ',
    ("lanes = 4", "lanes = -1"): "m.toml:8: settings.lanes = -1: lanes is a number, 1 or more; ",
    ("lanes = 4", "lanes = 4\ntp = 1"): "m.toml:9: settings.tp = 1: this setting is also an axis; ",
    ("lanes = 4", "lane = 4"): "m.toml:8: settings.lane = 4: target fake has no such setting; ",
    ('["kv_dtype"]', '["banana"]'): 'm.toml:10: policy.expect_fallback[0] = "banana": target fake never falls back ',
    ("expect_fallback", "expect_fallbacks"): "m.toml:10: policy.expect_fallbacks = ",
    ("[policy]", "[[extra_cells]]\ntp = 4\n[policy]"): "m.toml:9: extra_cells[0]: an extra cell gives every axis, ",
    ("target", "format = 2\ntarget"): "m.toml:1: format = 2: ",
}

SUITE_LINE = "ids = [3, 14, 15]"
SUITES = {
    (SUITE_LINE, "ids = [3, 14"): "suites/trio.toml:5: not TOML (",
    (SUITE_LINE, "ids = []"): "suites/trio.toml:2: prompts[0]: ",
    (SUITE_LINE, ""): "suites/trio.toml:2: prompts[0]: give exactly one of `text` and `ids`; ",
    (SUITE_LINE, 'text = "once"'): "{here}/toy/tokenizer.json: text prompts need it and it is missing; ",
    (SUITE_LINE, "ids = [3, 97]"): "suites/trio.toml:4: prompts[0].ids = [3, 97]: token 97 is outside the vocabulary ",
    (SUITE_LINE, "ids = [-1]"): "suites/trio.toml:4: prompts[0].ids = [-1]: token -1 is outside the vocabulary ",
    (
        SUITE_LINE,
        f"ids = {[1] * 60}",
    ): "suites/trio.toml:5: prompts[0].max_new_tokens = 12: 60 prompt and 12 new tokens ",
    ("max_new_tokens = 12", "max_new_tokens = 0"): "suites/trio.toml:5: prompts[0].max_new_tokens = 0: ",
    ("max_new_tokens = 12", "max_new_tokens = 12\narrival = -1"): "suites/trio.toml:6: prompts[0].arrival = -1: ",
    (
        "max_new_tokens = 12",
        "tokens = 12",
    ): "suites/trio.toml:5: prompts[0].tokens = 12: unknown key; choose one of id, ",
    ('id = "two"', 'id = "one"'): "suites/trio.toml: prompt id 'one' is given twice; ",
    ('id = "two"', 'id = "Two!"'): 'suites/trio.toml:7: prompts[1].id = "Two!": ',
    ('name = "trio"', 'name = "duo"'): "suites/trio.toml:1: name = \"duo\": the file's name says 'trio'; ",
    (
        'name = "trio"',
        'name = "trio"\nstop = { fraction = 1.5, seed = 1 }',
    ): "suites/trio.toml:2: stop.fraction = 1.5: ",
    ('name = "trio"', 'name = "trio"\npasses = 0'): "suites/trio.toml:2: passes = 0: ",
}

CONFIG = "toy/config.json"
MODELS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (
        lambda toy: (toy / "config.json").unlink(),
        f"{CONFIG}: cannot be read (No such file or directory); ",
    ),
    "a config that is none": (lambda toy: (toy / "config.json").write_text("{"), f"{CONFIG}: not JSON ("),
    "a config that is a list": (
        lambda toy: (toy / "config.json").write_text("[]"),
        f"{CONFIG}: must hold a JSON object; ",
    ),
    "remote code": (
        lambda toy: edit(toy / "config.json", auto_map={"AutoModel": "evil.Model"}),
        f"{CONFIG}: auto_map: ",
    ),
    "no vocabulary": (lambda toy: edit(toy / "config.json", vocab_size=None), f"{CONFIG}: vocab_size = None: "),
    "a context in words": (
        lambda toy: edit(toy / "config.json", max_position_embeddings="64"),
        f"{CONFIG}: max_position_embeddings = '64': ",
    ),
    "an end of sequence in words": (lambda toy: edit(toy / "config.json", eos_token_id="</s>"), "toy: eos_token_id = "),
    "an end of sequence in lists": (lambda toy: edit(toy / "config.json", eos_token_id=[[1]]), "toy: eos_token_id = "),
    "no weights": (lambda toy: (toy / "model.safetensors").unlink(), "toy: holds no *.safetensors; "),
    "pickled weights": (
        lambda toy: (toy / "model.safetensors").rename(toy / "pytorch_model.bin"),
        "toy: holds no *.safetensors (pytorch_model.bin would be unpickled); ",
    ),
    "an index that is none": (
        lambda toy: index(toy).write_text("weights"),
        "toy/model.safetensors.index.json: not JSON (",
    ),
    "an index that is a list": (
        lambda toy: edit(index(toy), weight_map=["a"]),
        f"toy/{'model.safetensors.index.json'}: w",
    ),
    "an index of numbers": (lambda toy: edit(index(toy), weight_map={"a": 1}), "toy/model.safetensors.index.json: w"),
    "an index of lists": (lambda toy: edit(index(toy), weight_map={"a": ["b"]}), "toy/model.safetensors.index.json: w"),
    "an index of more": (
        lambda toy: edit(index(toy), weight_map={"a": "b.safetensors"}),
        "toy/b.safetensors: named by ",
    ),
    "an index of no name": (lambda toy: edit(index(toy), weight_map={"a": "b\0" * 300}), "toy/b\\x00b\\x00"),
}


def index(folder: Path) -> Path:
    return folder / "model.safetensors.index.json"


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | changes))


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    return make_call(monkeypatch, capsys)


@pytest.fixture(autouse=True)
def world(fake_world: FakeWorld) -> FakeWorld:
    (fake_world.path / "m.toml").write_text(MATRIX)
    return fake_world


def contents(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def assert_refused(call: Call, world: FakeWorld, arguments: str, message: str) -> None:
    before = contents(world.path)
    call(*arguments.split()).assert_one_line(2, message.replace("{here}", str(world.path)))
    assert contents(world.path) == before, "nothing is lost, nothing is left"


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_what_the_table_starts_from_is_green(call: Call) -> None:
    assert call("run", "matrix", "m.toml").code == 0


@pytest.mark.parametrize(("arguments", "message"), OPTIONS.items(), ids=lambda text: text[:50])
def test_an_option(arguments: str, message: str, call: Call, world: FakeWorld) -> None:
    assert_refused(call, world, arguments, message)


@pytest.mark.parametrize(("change", "message"), MATRICES.items(), ids=str)
def test_a_matrix(change: tuple[str, str], message: str, call: Call, world: FakeWorld) -> None:
    replace(world.path / "m.toml", *change)
    assert_refused(call, world, "run matrix m.toml", message)


@pytest.mark.parametrize(("change", "message"), SUITES.items(), ids=str)
def test_a_suite(change: tuple[str, str], message: str, call: Call, world: FakeWorld) -> None:
    replace(world.path / "suites" / "trio.toml", *change)
    assert_refused(call, world, "run matrix m.toml", message)


@pytest.mark.parametrize("what", MODELS)
def test_a_model(what: str, call: Call, world: FakeWorld) -> None:
    spoil, message = MODELS[what]
    spoil(world.path / "toy")
    assert_refused(call, world, "run matrix m.toml", f"{{here}}/{message}")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", "tp = 1".encode("utf-16"), b"tp = 1\x00"])
def test_a_file_that_is_no_text(content: bytes, call: Call, world: FakeWorld) -> None:
    (world.path / "m.toml").write_bytes(content)
    assert_refused(call, world, "run matrix m.toml", "m.toml")


def test_what_a_user_typed_cannot_break_the_line(call: Call) -> None:
    call("run", "matrix", "m.toml", "--set", "lanes=1\n\x1b[31m2").assert_one_line(2, r"lanes = 1\n\x1b[31m2: ")
