"""Owns the program within the test's own process, on a fork server that is warm already."""

from collections.abc import Callable
from pathlib import Path

import pytest

from graphcheck.targets.bundled.target import BundledTarget
from tests.cli.program import ENVIRONMENT, Done, done
from tests.in_process import make_call

Program = Callable[..., Done]


@pytest.fixture
def warm_server(target: BundledTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every bundled target forks its ranks from one server, which starts once a session and outlives each run."""
    # A target finds a server in its class and closes none, since it has started none.
    monkeypatch.setattr(BundledTarget, "_server", target._server)


@pytest.fixture
def program(
    warm_server: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Program:
    """`program("run", "matrix")` runs `graphcheck run matrix` in the empty folder `tmp_path`."""
    monkeypatch.chdir(tmp_path)
    for name in ("COLUMNS", "NO_COLOR"):
        monkeypatch.setenv(name, ENVIRONMENT[name])
    call = make_call(monkeypatch, capsys)

    def run(*arguments: str) -> Done:
        ended = call(*arguments)
        return done(ended.code, ended.out + ended.err, tmp_path)

    return run
