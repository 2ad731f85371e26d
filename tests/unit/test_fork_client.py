"""A fork server that does not come up: what is said of it, how soon, and that nothing of it stays. No torch."""

import os
import sys
import time
from pathlib import Path

import pytest

from graphcheck.schema.errors import TargetError
from graphcheck.targets.bundled import fork_client
from graphcheck.targets.bundled.fork_client import ForkServer


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo no module named torch >&2; exit 3", r"\(exit status 3\): no module named torch: .*check that torch"),
        ("exit 0", r"\(exit status 0\): no output: "),
        ("kill -KILL $$", r"\(exit status -9\): no output: .*look for what stopped or killed it"),
        ("kill -STOP $$", r"\(exit status -9\): no output: .*look for what stopped or killed it"),
        ("sleep 60", r"no `ready` within 1 s; look at the load"),
    ],
)
def test_it_is_told_at_once_and_leaves_nothing(
    script: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(fork_client, "_START_SECONDS", 1.0)
    begun = time.monotonic()
    with pytest.raises(TargetError, match=said):
        ForkServer()
    assert time.monotonic() - begun < 10
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
