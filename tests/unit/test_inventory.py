"""What a machine has, told without torch in this process; what a child or a driver cannot tell has a reason."""

import signal
import sys
import threading
import time
import traceback
from pathlib import Path

import pytest

from graphcheck.harness.machine import nvidia
from graphcheck.harness.machine.child import ask
from graphcheck.harness.machine.environment import environment
from graphcheck.harness.machine.inventory import torch_view
from graphcheck.harness.running.interrupt import Interrupted
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.inventory import TorchView

TWO = "580.159.03, GPU-aa1, NVIDIA H200, 10, 143000\n580.159.03, GPU-bb2, NVIDIA H200, 20, 142990\n"
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (dvs)\nGCC version: 13.2.0\n"
)
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any trace of NVIDIA: `proc`, `dev` and `bin` (on PATH) are empty folders."""
    for name in ("proc", "dev", "bin"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(nvidia, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(nvidia, "_DEV", tmp_path / "dev")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


def install_nvidia_smi(machine: Path, text: str, status: int = 0) -> None:
    program = machine / "bin" / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nprintf '%s' '{text}'\nexit {status}\n")
    program.chmod(0o755)


def test_a_child_that_tells_is_believed() -> None:
    view = TorchView(version="2.11.0", cuda="13.0", nccl="2.28.9")
    assert torch_view(python(f"print({view.model_dump_json()!r})")) == (view, "")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import sys; sys.exit('ImportError: libcudart.so.13: no such file')", "status 1: ImportError: libcudart"),
        ("import os; os.abort()", "status -6: no output"),
        ("print('hello')", "answered 'hello"),
        ("pass", "answered ''"),
    ],
)
def test_a_child_that_fails_gives_a_reason(code: str, reason: str) -> None:
    view, problem = torch_view(python(code))
    assert view is None
    assert reason in problem


def test_a_child_that_hangs_is_given_up_with_a_reason() -> None:
    began = time.monotonic()
    view, problem = torch_view(python("import time; time.sleep(60)"), seconds=0.2)
    assert view is None
    assert problem.endswith("gave no answer within 0.2 s")
    assert time.monotonic() - began < 10


def test_a_signal_that_ends_the_asking_ends_the_child_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "pid"
    caller = threading.get_ident()

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted(ExitCode.TERMINATED)

    def is_asking() -> bool:
        stack = traceback.walk_stack(sys._current_frames()[caller])
        return any(frame.f_code.co_name == "communicate" for frame, _ in stack) and told.exists()

    def wait_for_the_child() -> None:
        while not (is_asking() and told.read_text().endswith("\n")):
            time.sleep(0.01)
        signal.pthread_kill(caller, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    waiter = threading.Thread(target=wait_for_the_child)
    waiter.start()
    try:
        with pytest.raises(Interrupted):
            ask(("sh", "-c", f"echo $$ > {told}; exec sleep 60"), seconds=60)
    finally:
        waiter.join()
        signal.signal(signal.SIGUSR1, before)
    assert not Path(f"/proc/{told.read_text().strip()}").exists()


def test_an_answer_that_is_not_utf_8_is_an_answer() -> None:
    assert ask(("printf", r"\377 MiB"), seconds=60).text == "\ufffd MiB"


def test_a_program_that_is_not_there_gives_a_reason() -> None:
    assert torch_view(("/nowhere/python",)) == (None, "/nowhere/python cannot be started (No such file or directory)")


@pytest.mark.parametrize(("text", "version"), [(OPEN, "580.159.04"), (CLOSED, "550.54.15"), ("", None)])
def test_the_drivers_version_is_read_without_torch(text: str, version: str | None, machine: Path) -> None:
    assert environment()["nvidia_driver"] == "none"
    (machine / "proc" / "version").write_text(text)
    assert nvidia.driver_version() == version
    assert environment()["nvidia_driver"] == (version or "none")
    install_nvidia_smi(machine, TWO)
    assert nvidia.driver_version() == (version or "580.159.03")


def test_devices_are_seen_by_any_of_their_traces(machine: Path) -> None:
    assert environment()["nvidia_devices"] == "0"
    install_nvidia_smi(machine, TWO)
    assert environment()["nvidia_devices"] == "2"
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm"):
        (machine / "dev" / name).touch()
    assert environment()["nvidia_devices"] == "1"
    for address in ("0000:01:00.0", "0000:02:00.0", "0000:03:00.0"):
        (machine / "proc" / "gpus" / address).mkdir(parents=True)
    assert environment()["nvidia_devices"] == "3"


def test_memory_is_told_by_gpu_as_ranks_see_them(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert nvidia.memory_in_use() is None, "no nvidia-smi"
    install_nvidia_smi(machine, TWO)
    assert nvidia.memory_in_use() == {0: 10, 1: 20}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert nvidia.memory_in_use() == {0: 20}


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.", 9),
        ("No devices were found", 0),
        ("580.159.03, GPU-aa1, NVIDIA H200, [N/A], [N/A]", 0),
        (TWO.replace("20", "[N/A]"), 0),
    ],
)
def test_memory_that_cannot_be_read_is_unknown(text: str, status: int, machine: Path) -> None:
    install_nvidia_smi(machine, text, status)
    assert nvidia.memory_in_use() is None


@pytest.mark.parametrize(
    ("listed", "uuids"),
    [
        (None, ["GPU-aa1", "GPU-bb2"]),
        ("1,0", ["GPU-bb2", "GPU-aa1"]),
        (" 1 ", ["GPU-bb2"]),
        ("GPU-b", ["GPU-bb2"]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("0,7,1", ["GPU-aa1"]),
        ("GPU-", []),
        ("MIG-aa1", None),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(listed: str | None, uuids: list[str] | None) -> None:
    gpus = nvidia.parse(TWO)
    assert gpus is not None
    shown = nvidia.choose(gpus, {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed})
    assert (None if shown is None else [gpu.uuid for gpu in shown]) == uuids


def test_unlike_gpus_can_be_told_apart_only_in_bus_order() -> None:
    gpus = nvidia.parse(TWO.replace("NVIDIA H200, 20", "NVIDIA L4, 20"))
    assert gpus is not None
    assert nvidia.choose(gpus, {}) is None
    assert nvidia.choose(gpus, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) == gpus
