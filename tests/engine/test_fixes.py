"""Each fix: what its absence breaks in one process, where its site is reached, and that off is not on."""

import pytest

from graphcheck.engine.config import EngineConfig
from graphcheck.engine.errors import ConfigError
from graphcheck.engine.fixes import FIX_NAMES
from graphcheck.engine.request import Request
from tests.engine.conftest import EngineMaker
from tests.engine.outputs import random_requests, run_engine

VOCAB = 211
GRAPH_FIXES = ("device-metadata", "metadata-refresh")


@pytest.mark.parametrize("fix", GRAPH_FIXES)
def test_without_the_fix_replay_is_wrong_and_eager_is_right(make_engine: EngineMaker, fix: str) -> None:
    requests = random_requests(8, vocab=VOCAB)
    expected = run_engine(make_engine(graph="off"), requests).tokens
    assert run_engine(make_engine(graph="off", fixes_off=(fix,)), requests).tokens == expected
    wrong = run_engine(make_engine(graph="on", fixes_off=(fix,)), requests).tokens
    assert all(wrong[request] != tokens for request, tokens in expected.items())
    again = run_engine(make_engine(graph="on", fixes_off=(fix,)), requests).tokens
    assert again == wrong, "a frozen value must break the same tokens in every run"


def test_without_metadata_refresh_token_ids_are_still_copied(make_engine: EngineMaker) -> None:
    engine = make_engine(graph="on", fixes_off=("metadata-refresh",))
    run_engine(engine, [Request("r", (5, 6, 7), max_new_tokens=3)])
    inputs = engine.runner.inputs
    assert inputs.token_ids[0].item() != 0
    assert (inputs.positions[0].item(), inputs.seq_lens[0].item(), inputs.slot_mapping[0].item()) == (0, 1, 0)
    assert not inputs.block_tables.any()


def test_refresh_fills_spare_lanes_and_live_ones(make_engine: EngineMaker) -> None:
    engine = make_engine(graph="on", buckets="4", lanes=4)
    run_engine(engine, [Request("r", tuple(range(1, 18)), max_new_tokens=2)])
    inputs = engine.runner.inputs
    assert inputs.positions.tolist() == [17, 0, 0, 0]
    assert inputs.seq_lens.tolist() == [18, 1, 1, 1]
    assert inputs.slot_mapping[1:].tolist() == [0, 0, 0]
    assert inputs.block_tables[0, :2].all()
    assert not inputs.block_tables[1:].any()


def test_sites_are_counted_per_phase(make_engine: EngineMaker) -> None:
    requests = random_requests(4, vocab=VOCAB)
    engine = make_engine(graph="on")
    run_engine(engine, requests)
    counters = engine.counters()
    assert counters.sites["metadata-refresh"] == {"prepare": counters.replays, "capture": 0, "replay": 0, "eager": 0}
    assert counters.sites["device-metadata"] == {
        "prepare": 0,
        "capture": counters.captures,
        "replay": counters.replays,
        "eager": 0,
    }
    eager = make_engine(graph="off")
    steps = run_engine(eager, requests).steps
    assert eager.counters().sites["device-metadata"]["eager"] == sum(step.phase == "decode" for step in steps)
    assert eager.counters().sites["metadata-refresh"] == dict.fromkeys(("prepare", "capture", "replay", "eager"), 0)


@pytest.mark.parametrize(("count", "reached"), [(2, False), (1, True)])
def test_pad_clear_is_reached_only_where_a_lane_is_spare(make_engine: EngineMaker, count: int, reached: bool) -> None:
    engine = make_engine(graph="on", lanes=2, buckets="2")
    run_engine(engine, random_requests(count, vocab=VOCAB))
    counters = engine.counters()
    assert counters.replays
    assert (counters.padded_lanes > 0) == reached
    assert counters.sites["pad-clear"]["prepare"] == (counters.replays if reached else 0)


def test_unknown_fix_is_refused_with_the_choices() -> None:
    with pytest.raises(ConfigError, match="no such fix.*" + FIX_NAMES[0]):
        EngineConfig.from_settings({}, frozenset({"no-such-fix"}))
