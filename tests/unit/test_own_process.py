"""Processes of graphcheck's own: whose code they run, and that they end with their parent. No torch."""

import signal
import subprocess
from pathlib import Path

import pytest

from graphcheck.targets import own_process

NO_PROCESS = 0


@pytest.mark.parametrize(
    ("module", "files"),
    [
        ("graphcheck.targets.bundled.fork_server", [99]),
        ("graphcheck.targets.transformers", ["job.json", 99]),
    ],
)
def test_one_whose_parent_died_while_it_started_leaves_before_it_imports_torch(
    module: str, files: list[object], tmp_path: Path
) -> None:
    (tmp_path / "ctypes.py").write_text("raise ImportError('a file of the folder where the user stands')")
    python, *rest = own_process.command(module, NO_PROCESS, *files)
    done = subprocess.run(
        [python, "-X", "importtime", *rest],
        cwd=tmp_path,
        env=own_process.environment(),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "graphcheck.targets.own_process" in imported
    assert not imported & {"torch", "transformers"}


def test_what_one_printed_before_it_was_killed_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "talkative.py").write_text("import os\nprint('said')\nos.kill(os.getpid(), 9)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    done = subprocess.run(
        own_process.command("talkative"), env=own_process.environment(), stdout=subprocess.PIPE, check=False
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"said\n")
