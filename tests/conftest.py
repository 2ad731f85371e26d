"""Fixtures that tests of every kind share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from graphcheck.targets.bundled.target import BundledTarget
from tests.fake_world import FakeWorld, make_world


@pytest.fixture
def fake_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeWorld:
    """A fresh world of the fake target, which is also the current folder."""
    monkeypatch.chdir(tmp_path)
    return make_world(tmp_path)


@pytest.fixture(scope="session")
def target() -> Iterator[BundledTarget]:
    """One warm target for the whole session: its fork server starts with the first attempt."""
    bundled = BundledTarget()
    yield bundled
    bundled.close()


@pytest.fixture
def inline_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference runs within this process; only the process of its own is left out, which takes seconds to start."""
    from tests.inline_reference import InlineSession

    monkeypatch.setattr("graphcheck.targets.transformers.target.WorkerSession", InlineSession)
