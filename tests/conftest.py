"""Fixtures that tests of every kind share."""

from pathlib import Path

import pytest

from tests.fake_world import FakeWorld, make_world


@pytest.fixture
def fake_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeWorld:
    """A fresh world of the fake target, which is also the current folder."""
    monkeypatch.chdir(tmp_path)
    return make_world(tmp_path)
