"""Delays through the site hook: at the right site and rank, in every replay, and without changing a token."""

import time
from pathlib import Path

import pytest

from graphcheck.engine.config import EngineConfig
from graphcheck.engine.device import CpuDevice
from graphcheck.engine.engine import Engine
from graphcheck.engine.errors import ConfigError
from graphcheck.engine.journal import JournalMemory
from graphcheck.engine.site_names import step_sites
from tests.engine.outputs import random_requests, run_engine


def engine_with(folder: Path, graph: str, delays: dict[str, float]) -> Engine:
    memory, _ = JournalMemory.create(1)
    config = EngineConfig.from_settings({"graph": graph}, frozenset(), delays)
    engine = Engine(folder, config, rank=0, device=CpuDevice(), journal=memory.writer(0))
    engine.load()
    engine.capture()
    return engine


@pytest.mark.parametrize("graph", ["off", "on"])
@pytest.mark.parametrize("site", list(step_sites(2)))
def test_delay_is_met_in_every_step_and_changes_no_token(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, site: str, graph: str
) -> None:
    requests = random_requests(2, vocab=211, max_new_tokens=4)
    expected = run_engine(engine_with(tiny, graph, {}), requests).tokens
    engine = engine_with(tiny, graph, {site: 0.02})
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    collected = run_engine(engine, requests)
    assert slept == [0.02] * len(collected.steps)
    assert collected.tokens == expected


def test_delay_at_an_unknown_site_is_refused_with_the_choices(tiny: Path) -> None:
    with pytest.raises(ConfigError, match=r"layers\.7\.o_proj\.reduce.*no such site.*layers\.1\.o_proj\.reduce"):
        engine_with(tiny, "off", {"layers.7.o_proj.reduce": 0.02})
