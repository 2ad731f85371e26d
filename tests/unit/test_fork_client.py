"""A fork server that does not come up: what is said of it, how soon, and that nothing of it stays. No torch."""

import os
import sys
import time
from collections.abc import Callable
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


SERVER = """
import json, os, socket, sys, time
control = socket.socket(fileno=int(sys.argv[-1]))
control.send(json.dumps({"ready": os.getpid()}).encode())
control.recv(1 << 16)
"""


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ForkServer]:
    """Starts a server that is ready, waits for a request, and then goes on as told."""

    def start(then: str) -> ForkServer:
        (tmp_path / "server.py").write_text(SERVER + then)
        program = tmp_path / "python"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tmp_path}/server.py" "$@"\n')
        program.chmod(0o755)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", str(program))
            return ForkServer()

    monkeypatch.setattr(fork_client, "_FORK_SECONDS", 0.5)
    return start


def test_a_fork_that_answers_late_is_not_taken_for_the_next_one(serve: Callable[[str], ForkServer]) -> None:
    server = serve("time.sleep(2)\ncontrol.send(json.dumps({'forked': 1}).encode())\ntime.sleep(60)\n")
    with pytest.raises(TargetError, match=r"no `forked` within 0.5 s"):
        server.fork(0, Path("job"), [])
    server._process.wait(5)
    assert not server.is_alive
    server.close()


def test_a_server_that_lives_on_behind_a_closed_socket_does_not_stop_the_supervisor(
    serve: Callable[[str], ForkServer],
) -> None:
    server = serve("control.close()\ntime.sleep(60)\n")
    begun = time.monotonic()
    with pytest.raises(TargetError, match=r"\(exit status -9\)"):
        server.fork(0, Path("job"), [])
    assert time.monotonic() - begun < 10
    server.close()
