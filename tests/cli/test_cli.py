"""The whole program, as a shell sees it: what it prints, what it loads, and its exit code."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import graphcheck
from tests.fake_world import FakeWorld
from tests.in_process import Call, make_call

ROOT = Path(graphcheck.__file__).parents[1]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"}
HEAVY = ("torch", "transformers", "pandas", "numpy")


def run(*arguments: str, program: tuple[str, ...] = ("-m", "graphcheck")) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=120, check=False)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    return make_call(monkeypatch, capsys)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["run", "matrix", "--help"], ["report", "--help"], ["list", "--help"]]
)
def test_help_is_quick_because_it_loads_no_library(arguments: list[str]) -> None:
    program = f"""
import atexit, sys
from graphcheck.__main__ import main
atexit.register(lambda: print("LOADED", [name for name in {HEAVY} if name in sys.modules]))
main()
"""
    done = run(*arguments, program=("-c", program))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "LOADED []"


def test_the_version_is_the_packages() -> None:
    assert run("--version").stdout == f"graphcheck {graphcheck.__version__}\n"


def test_a_green_run_ends_with_grid_summary_and_exit_code(fake_world: FakeWorld) -> None:
    done = run("run", "matrix", str(fake_world.matrix(tp=[1, 2], graph=["off", "on"])))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("tp1-graph_off  PASS  3/3  ")
    assert lines[-2] == "4/4 cells, 12/12 token-exact (fake on CPU, no CUDA graph ran)"
    assert lines[-1].startswith("exit 0: pass; next: ")


def test_options_reach_the_run_and_its_record(call: Call, fake_world: FakeWorld) -> None:
    matrix = str(fake_world.matrix(graph=["off", "on"]))
    options = ["--disable-fix", "refresh", "--disable-fix", "sync", "--ignore-eos", "--lanes", "2"]
    options += ["--set", "buckets=1,2", "--run-dir", "out", "--require-backend", "fake", "--golden-dir", "golden"]
    assert call("run", "matrix", matrix, *options).code == 1
    record = json.loads(Path("out/run.json").read_text(encoding="utf-8"))
    assert record["fixes_off"] == ["refresh", "sync"]
    assert record["overrides"] == {"ignore_eos": True, "lanes": 2, "buckets": "1,2", "require_backend": "fake"}
    assert record["command"] == ["graphcheck", "run", "matrix", matrix, *options]


def test_a_model_folder_may_take_the_place_of_the_matrixs(call: Call, fake_world: FakeWorld) -> None:
    other = fake_world.path / "other"
    (fake_world.path / "toy").rename(other)
    matrix = str(fake_world.matrix(graph=["off"]))
    assert call("run", "matrix", matrix).code == 2
    assert call("run", "matrix", matrix, "--model", str(other)).code == 6, "no golden for a model of that name"


def test_a_report_says_again_what_the_run_said(call: Call, fake_world: FakeWorld) -> None:
    first = call("run", "matrix", str(fake_world.matrix(graph=["on"], fault=["drift"])), "--run-dir", "out")
    again = call("report", "out")
    assert first.code == again.code == 1
    assert first.out.endswith(again.out)
    assert "drift" in again.out


def test_a_hang_is_reported_within_a_second_of_its_limit(fake_world: FakeWorld) -> None:
    done = run("run", "matrix", str(fake_world.matrix(tp=[2], fault=["hang"])), "--run-dir", "out")
    assert done.returncode == 3
    cells = Path("out/cells.jsonl").read_text(encoding="utf-8").splitlines()
    stall = json.loads(cells[-1])["facts"]["stall"]
    assert stall["limit_seconds"] <= stall["stalled_seconds"] <= stall["limit_seconds"] + 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run matrix nowhere", "matrix 'nowhere': no shipped matrix has that name; "),
        ("run matrix m.toml --disable-fix typo", "fix 'typo': target fake has no such fix; "),
        ("run matrix m.toml --set lanes", "--set lanes: a setting is written key=value; "),
        ("run matrix m.toml --set speed=9", "speed = 9: target fake has no such setting; "),
        ("run matrix m.toml --model nowhere", "model 'nowhere': no such folder; "),
        ("report .", "run.json: cannot be read (No such file or directory); "),
        ("golden regen nowhere", "matrix 'nowhere': no shipped matrix has that name; "),
    ],
)
def test_what_the_user_got_wrong_is_one_line_and_exit_2(
    call: Call, arguments: str, message: str, fake_world: FakeWorld
) -> None:
    fake_world.matrix(graph=["off"])
    call(*arguments.split()).assert_one_line(2, message)
    assert not Path("runs").exists()


def test_a_shell_sees_one_line_on_standard_error_and_exit_2() -> None:
    done = run("report", "nowhere")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    "arguments", ["run matrix --lanes 0", "run matrix --no-such-option", "list nothing", "frobnicate"]
)
def test_options_that_do_not_exist_are_exit_2(call: Call, arguments: str) -> None:
    ended = call(*arguments.split())
    assert ended.code == 2
    assert "Traceback" not in ended.err


def test_everything_uncaught_is_internal_and_shows_its_traceback() -> None:
    program = """
import graphcheck.__main__ as entry
def broken(**options): raise AssertionError("no such case")
entry.app = broken
entry.main()
"""
    done = run(program=("-c", program))
    assert done.returncode == 70
    assert "AssertionError: no such case" in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_with_its_records_closed(number: int, code: int, fake_world: FakeWorld) -> None:
    matrix = str(fake_world.matrix(fault=["none", "spin"]))
    command = [sys.executable, "-m", "graphcheck", "run", "matrix", matrix, "--run-dir", "out"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("fault_none  PASS")
        process.send_signal(number)
        rest = process.stdout.read()
    assert process.returncode == code
    assert rest.splitlines()[-1].startswith(f"exit {code}: ")
    assert json.loads(Path("out/run.json").read_text(encoding="utf-8"))["exit_code"] == code


def test_a_reader_that_goes_away_does_not_change_the_exit_code(call: Call, fake_world: FakeWorld) -> None:
    call("run", "matrix", str(fake_world.matrix(graph=["on"], fault=["drift"])), "--run-dir", "out")
    command = [sys.executable, "-m", "graphcheck", "report", "out"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


@pytest.mark.parametrize(
    ("kind", "name"),
    [("targets", "fake"), ("targets", "bundled"), ("fixes", "allreduce-sync"), ("fixes", "sync"), ("settings", "kv")],
)
def test_what_there_is_can_be_listed(call: Call, kind: str, name: str) -> None:
    ended = call("list", kind)
    assert (ended.code, ended.err) == (0, "")
    assert name in [line.split()[0] for line in ended.out.splitlines()]
