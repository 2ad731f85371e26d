"""Breadcrumbs: a reader of the journal sees how far a replay has come, and no bit of the step changes by them."""

import threading
import time
from pathlib import Path

import pytest

from graphcheck.engine import breadcrumbs
from graphcheck.engine.config import EngineConfig
from graphcheck.engine.device import CpuDevice
from graphcheck.engine.engine import Engine
from graphcheck.engine.errors import ConfigError
from graphcheck.engine.journal import JournalMemory, Trail
from tests.engine.outputs import random_requests, run_engine

STUCK_AT = "layers.1.o_proj.reduce.done"


def engine_with(folder: Path, memory: JournalMemory, delays: dict[str, float], **settings: str) -> Engine:
    config = EngineConfig.from_settings({"graph": "on", "logits": "digest", **settings}, frozenset(), delays)
    engine = Engine(folder, config, rank=0, device=CpuDevice(), journal=memory.writer(0))
    engine.load()
    engine.capture()
    return engine


def trail_of(memory: JournalMemory) -> Trail:
    trail = memory.snapshot(0).trail
    assert trail is not None
    return trail


@pytest.mark.parametrize("graph", ["off", "on"])
def test_steps_are_followed_to_their_ends_and_keep_every_bit(tiny: Path, graph: str) -> None:
    requests = random_requests(2, vocab=211, max_new_tokens=4)
    silent, followed = JournalMemory.create(1)[0], JournalMemory.create(1)[0]
    expected = run_engine(engine_with(tiny, silent, {}, graph=graph, breadcrumbs="off"), requests)
    collected = run_engine(engine_with(tiny, followed, {}, graph=graph), requests)
    assert [step.logits_sha for step in collected.steps] == [step.logits_sha for step in expected.steps]
    trail = trail_of(followed)
    assert (trail.step, trail.passed) == (len(collected.steps), set(trail.sites))
    assert trail.replay == sum(step.replayed for step in collected.steps)
    assert silent.snapshot(0).trail is None


def test_stuck_replay_shows_the_collective_that_it_has_not_left(tiny: Path) -> None:
    memory, _ = JournalMemory.create(1)
    engine = engine_with(tiny, memory, {STUCK_AT: 0.5})
    run = threading.Thread(target=run_engine, args=(engine, random_requests(1, vocab=211, max_new_tokens=2)))
    run.start()
    deadline = time.monotonic() + 30.0
    while (trail := memory.snapshot(0).trail) is None or trail.replay == 0 or STUCK_AT[:-5] not in trail.passed:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    at = trail.sites.index(STUCK_AT)
    assert trail.passed == set(trail.sites[:at])
    run.join()
    assert trail_of(memory).passed == set(trail.sites)


def test_model_with_more_sites_than_a_trail_has_words_is_refused(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breadcrumbs, "MOST_SITES", 5)
    with pytest.raises(ConfigError, match="12 sites, a trail 5 words; use breadcrumbs = off"):
        engine_with(tiny, JournalMemory.create(1)[0], {})
