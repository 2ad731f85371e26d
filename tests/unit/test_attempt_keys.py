"""Attempt keys: unique within a run, and safe as file names."""

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcheck.schema.attempt import Attempt, Cell, Delay
from tests.fake_world import FakeWorld

CELLS = [Cell(axes={"tp": tp, "graph": graph}) for tp, graph in product((1, 2, 4), ("off", "on"))]
FIXES = st.sets(st.sampled_from(["device-metadata", "metadata-refresh", "allreduce-sync"])).map(tuple)
DELAYS = st.lists(
    st.builds(
        Delay, rank=st.integers(0, 3), site=st.sampled_from(["layers.3.o_proj.reduce", "logits"]), ms=st.just(2.5)
    ),
    max_size=2,
).map(tuple)
ATTEMPTS = st.builds(
    Attempt,
    cell=st.sampled_from(CELLS),
    fixes_off=FIXES,
    delays=DELAYS,
    repeat=st.integers(0, 20),
    feed=st.sampled_from(["free", "forced"]),
)


@given(ATTEMPTS, ATTEMPTS)
def test_different_attempts_have_different_keys(one: Attempt, other: Attempt) -> None:
    def identity(attempt: Attempt) -> Attempt:
        return attempt.model_copy(update={"fixes_off": tuple(sorted(attempt.fixes_off))})

    assert (one.key == other.key) == (identity(one) == identity(other))


@given(ATTEMPTS)
def test_a_key_is_safe_as_a_file_name(attempt: Attempt) -> None:
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._@=,-]*", attempt.key)


@pytest.mark.parametrize(
    ("attempt", "key"),
    [
        (Attempt(cell=CELLS[3]), "tp2-graph_on"),
        (Attempt(cell=CELLS[3], fixes_off=("b", "a")), "tp2-graph_on.no-a.no-b"),
        (Attempt(cell=CELLS[0], repeat=2, feed="forced"), "tp1-graph_off.r2.forced"),
    ],
)
def test_keys_are_what_a_person_would_type(attempt: Attempt, key: str) -> None:
    assert attempt.key == key


def test_records_of_an_attempt_are_found_by_its_key(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(tp=[1, 2], buckets=["1,2", "4"]), fixes_off=("sync",))
    keys = [f"tp{tp}-buckets_{buckets}.no-sync" for tp in (1, 2) for buckets in ("1,2", "4")]
    assert list(run.info.planned) == [attempt.started.key for attempt in run.attempts] == keys
    for key in keys:
        assert (run.path / "steps" / f"{key}.jsonl").is_file()
        assert (run.attempt_dir(key) / "rank0.log").is_file()
