"""The journal and the meeting of ranks over it: what a reader sees, who may enter, who must wait."""

import os
import threading

import pytest

from graphcheck.engine.journal import NUM_TAGS, JournalMemory, JournalWriter, Trail
from graphcheck.engine.rendezvous import Rendezvous

SITES = ["layers.0.o_proj.reduce", "lm_head.gather"]


@pytest.fixture
def memory() -> JournalMemory:
    journal, file = JournalMemory.create(2)
    os.close(file)
    return journal


def writer_of(memory: JournalMemory, rank: int) -> JournalWriter:
    writer = memory.writer(rank)
    writer.sites(SITES)
    return writer


def test_counters_are_read_as_written_and_ranks_are_apart(memory: JournalMemory) -> None:
    writer = memory.writer(1)
    writer.phase("decode")
    writer.step(7)
    writer.unit()
    writer.beat()
    writer.finished()
    record = memory.snapshot(1)
    assert (record.phase, record.step, record.unit, record.beat, record.finished) == ("decode", 7, 2, 1, True)
    other = memory.snapshot(0)
    assert (other.phase, other.step, other.unit, other.beat, other.finished) == ("start", 0, 0, 0, False)


def test_second_mapping_of_the_same_file_sees_the_first_ones_writes() -> None:
    memory, file = JournalMemory.create(2)
    memory.writer(0).step(3)
    assert JournalMemory(file, 2).snapshot(0).step == 3
    os.close(file)


def test_last_tags_are_kept_oldest_first_with_their_sites(memory: JournalMemory) -> None:
    writer = writer_of(memory, 0)
    for number in range(NUM_TAGS + 3):
        writer.announce("reduce", number, 4 * number, SITES[0])
    writer.announce("gather", 8, 64, SITES[1])
    tags = memory.snapshot(0).tags
    assert [tag.number for tag, _ in tags] == list(range(5, NUM_TAGS + 5))
    assert (tags[-1][0].kind, tags[-1][0].rows, tags[-1][0].nbytes, tags[-1][1]) == ("gather", 8, 64, SITES[1])


def test_declared_wait_shows_while_it_lasts(memory: JournalMemory) -> None:
    writer = memory.writer(0)
    with writer.waiting("wait_for_peers"):
        assert memory.snapshot(0).waiting == "wait_for_peers"
        assert memory.snapshot(0).waiting_seconds >= 0.0
    assert memory.snapshot(0).waiting == ""


def test_ranks_that_announce_the_same_enter_however_often(memory: JournalMemory) -> None:
    rounds = 40 * NUM_TAGS

    def enter(rank: int) -> None:
        side = Rendezvous(writer_of(memory, rank), 2)
        for _ in range(rounds):
            side.enter("reduce", 4, 64, SITES[0])

    threads = [threading.Thread(target=enter, args=(rank,), daemon=True) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    assert not any(thread.is_alive() for thread in threads)
    assert memory.snapshot(0).collective == rounds


@pytest.mark.parametrize("other", [("reduce", 8, 64), ("gather", 4, 64), ("reduce", 4, 128)])
def test_ranks_that_announce_different_collectives_do_not_enter(
    memory: JournalMemory, other: tuple[str, int, int]
) -> None:
    writer_of(memory, 0).announce("reduce", 4, 64, SITES[0])
    writer_of(memory, 1).announce(*other, SITES[0])
    assert not memory.agree(1, range(2))


def test_sites_may_differ(memory: JournalMemory) -> None:
    writer_of(memory, 0).announce("reduce", 4, 64, SITES[0])
    writer_of(memory, 1).announce("reduce", 4, 64, SITES[1])
    assert memory.agree(1, range(2))


def test_rank_waits_for_a_peer_that_has_not_come(memory: JournalMemory) -> None:
    writer_of(memory, 0).announce("reduce", 4, 64, SITES[0])
    assert not memory.agree(1, range(2))


def test_late_rank_still_finds_the_entry_of_one_that_went_on(memory: JournalMemory) -> None:
    early, late = writer_of(memory, 0), writer_of(memory, 1)
    late.announce("reduce", 4, 64, SITES[0])
    early.announce("reduce", 4, 64, SITES[0])
    early.announce("reduce", 4, 64, SITES[0])
    assert memory.agree(1, range(2))
    assert not memory.agree(2, range(2))


def trail_of(memory: JournalMemory, rank: int) -> Trail:
    trail = memory.snapshot(rank).trail
    assert trail is not None
    return trail


def test_trail_shows_the_sites_that_the_step_in_flight_has_passed(memory: JournalMemory) -> None:
    writer, other = writer_of(memory, 0), writer_of(memory, 1)
    words = writer.trail_words().cast("q")
    assert memory.snapshot(0).trail is None
    for step, replay in ((1, 0), (2, 1)):
        writer.launched(step, replay)
        assert trail_of(memory, 0) == Trail(step, replay, tuple(SITES), frozenset())
        words[0] = step
        assert trail_of(memory, 0).passed == {SITES[0]}
        words[1] = step
        assert trail_of(memory, 0).passed == set(SITES)
    other.launched(1, 0)
    assert trail_of(memory, 1).passed == set()
