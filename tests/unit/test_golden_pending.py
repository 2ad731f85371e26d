"""Pending goldens: never over the old one, and accepted only as far as the change allows."""

from collections.abc import Callable
from pathlib import Path

import pytest

from graphcheck.harness.files.golden_store import golden_name, read_golden, write_golden
from graphcheck.harness.files.matrix_file import load_matrix
from graphcheck.harness.golden.accept import accept, checked_reason, reject
from graphcheck.harness.golden.moved import Movement
from graphcheck.harness.golden.pending import Filed, GoldenPlace, State, file_golden, find_pending
from graphcheck.harness.golden.review import ChangeKind
from graphcheck.harness.running.execute import Surroundings
from graphcheck.harness.running.supervise import Clock
from graphcheck.schema.errors import FileError, GoldenCorrupt, UsageError
from graphcheck.schema.golden import GoldenPrompt, GoldenStep
from graphcheck.targets.fake import FakeTarget
from tests.failing_disk import make_unreadable
from tests.fake_world import FakeWorld

GOLDEN, PENDING = Path("golden/toy/trio.jsonl"), Path("golden/toy/trio.jsonl.pending")
FLIPPED_STEP = 3


@pytest.fixture(autouse=True)
def outside_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)


def flip(prompt: GoldenPrompt) -> GoldenPrompt:
    """Another token at one step, as sure as the old one."""
    token = (prompt.ids[FLIPPED_STEP] + 50) % 97
    ids = (*prompt.ids[:FLIPPED_STEP], token, *prompt.ids[FLIPPED_STEP + 1 :])
    steps = (*prompt.steps[:FLIPPED_STEP], GoldenStep(top=((token, 4.0), (0, 1.5))), *prompt.steps[FLIPPED_STEP + 1 :])
    return prompt.model_copy(update={"ids": ids, "steps": steps})


def soften(prompt: GoldenPrompt) -> GoldenPrompt:
    soft = prompt.steps[FLIPPED_STEP].model_copy(update={"soft": True})
    steps = (*prompt.steps[:FLIPPED_STEP], soft, *prompt.steps[FLIPPED_STEP + 1 :])
    return prompt.model_copy(update={"steps": steps})


def make(
    change: Callable[[GoldenPrompt], GoldenPrompt] = lambda prompt: prompt,
    versions: dict[str, str] | None = None,
    *,
    place: GoldenPlace | None = None,
) -> Filed:
    """The golden made again, prompt `one` changed."""
    old = read_golden(GOLDEN)
    fields = old.header.model_dump(exclude={"format", "num_prompts", "body_sha"}) | {"made_on": "2002-02-02"}
    prompts = [change(prompt) if prompt.id == "one" else prompt for prompt in old.prompts]
    place = place or GoldenPlace(Path("golden"), [Path("golden")])
    return file_golden(golden_name("toy", "trio", "float32"), fields | {"versions": versions or {}}, prompts, place)


def make_old_soft() -> None:
    old = read_golden(GOLDEN)
    fields = old.header.model_dump(exclude={"format", "num_prompts", "body_sha"})
    write_golden(GOLDEN, fields, [soften(prompt) for prompt in old.prompts])


def decide(world: FakeWorld, reason: str | None = None, *, matrices: bool = True) -> Movement | None:
    """Accepts all that is pending; the engine is the fake one, in virtual time."""
    surroundings = Surroundings(
        load_target=lambda name: FakeTarget(world.clock.sleep),
        count_devices=lambda kind: 0,
        clock=Clock(world.clock.now, world.clock.sleep),
    )
    known = [load_matrix("m.toml")] if matrices else []
    [moved] = accept(find_pending([]), reason, known, surroundings=surroundings)
    return moved


def test_a_change_waits_beside_the_golden_and_never_over_it(fake_world: FakeWorld) -> None:
    before = GOLDEN.read_bytes()
    made = make(flip)
    assert (made.path, made.state, made.review.kind) == (PENDING, State.PENDING, ChangeKind.HARD)
    assert GOLDEN.read_bytes() == before
    assert make(flip).path.read_bytes() == PENDING.read_bytes()
    assert not make(flip).written


def test_a_golden_that_is_the_same_again_withdraws_the_pending_one(fake_world: FakeWorld) -> None:
    make(flip)
    assert make().state is State.SAME
    assert [path.name for path in GOLDEN.parent.iterdir()] == ["trio.jsonl"]


def test_a_first_golden_is_written_at_once(fake_world: FakeWorld) -> None:
    place = GoldenPlace(Path("other"), [Path("other")])
    made = make(place=place)
    assert (made.path, made.state, made.written) == (Path("other/toy/trio.jsonl"), State.FIRST, True)
    assert read_golden(made.path).prompts == read_golden(GOLDEN).prompts


def test_a_golden_that_lies_elsewhere_is_reviewed_all_the_same(fake_world: FakeWorld) -> None:
    """Else a new file in the first folder would hide the golden that a run has used until now."""
    made = make(flip, place=GoldenPlace(Path("mine"), [Path("mine"), Path("golden")]))
    assert (made.path, made.state) == (Path("mine/toy/trio.jsonl.pending"), State.PENDING)
    assert make(place=GoldenPlace(Path("mine"), [Path("mine"), Path("golden")])).state is State.SAME
    beside = make(flip, place=GoldenPlace(Path("mine"), [Path("mine"), Path("golden")], beside=[Path("golden")]))
    assert beside.path == PENDING


def test_a_place_that_may_not_be_written_is_left_as_it_is(fake_world: FakeWorld) -> None:
    made = make(flip, place=GoldenPlace(Path("golden"), [Path("golden")], writes=False))
    assert (made.state, made.written, PENDING.exists()) == (State.PENDING, False, False)
    assert make(place=GoldenPlace(Path("other"), [Path("other")], writes=False)).state is State.FIRST
    assert not Path("other").exists()


def test_a_hard_change_needs_a_reason_which_the_file_keeps(fake_world: FakeWorld) -> None:
    fake_world.matrix(graph=["off"])
    before = GOLDEN.read_bytes()
    replaced = read_golden(GOLDEN).header.body_sha
    make(flip)
    with pytest.raises(UsageError, match="HARD: tokens changed whose margins were above the noise, in one"):
        decide(fake_world)
    assert (GOLDEN.read_bytes(), PENDING.exists()) == (before, True)
    assert decide(fake_world, "the reference was wrong") is None
    hard = read_golden(GOLDEN).header.hard
    assert hard is not None
    assert (hard.reason, hard.prompts, hard.replaced_body_sha) == ("the reference was wrong", ("one",), replaced)
    assert not PENDING.exists()


def test_one_change_without_its_reason_holds_back_all(fake_world: FakeWorld) -> None:
    fake_world.matrix(graph=["off"])
    make(flip)
    other = read_golden(GOLDEN)
    fields = other.header.model_dump(exclude={"format", "num_prompts", "body_sha"}) | {"dtype": "bfloat16"}
    harmless = GOLDEN.with_name("trio.bfloat16.jsonl.pending")
    write_golden(harmless, fields, other.prompts)
    with pytest.raises(UsageError, match=r"trio\.jsonl\.pending: HARD"):
        accept(find_pending([]), None, [])
    assert harmless.exists()
    assert accept(find_pending([harmless]), None, []) == [None]
    assert read_golden(GOLDEN.with_name("trio.bfloat16.jsonl")).header.hard is None


def test_a_folder_that_cannot_be_written_leaves_those_before_it_accepted_and_the_others_waiting(
    fake_world: FakeWorld,
) -> None:
    make(lambda prompt: prompt.model_copy(update={"text": "other"}))
    later = Path("golden/toy/trio.zzz.jsonl.pending")
    fields = read_golden(PENDING).header.model_dump(exclude={"format", "num_prompts", "body_sha"}) | {"dtype": "zzz"}
    write_golden(later, fields, read_golden(PENDING).prompts)
    obstacle = later.with_suffix("")
    obstacle.mkdir()
    with pytest.raises(FileError, match=r"trio\.zzz\.jsonl: cannot be written"):
        accept(find_pending([]), None, [])
    assert (read_golden(GOLDEN).prompts[0].text, PENDING.exists(), later.exists()) == ("other", False, True)
    obstacle.rmdir()
    assert accept(find_pending([]), None, []) == [None]
    assert (obstacle.is_file(), later.exists()) == (True, False)


def test_an_old_golden_that_cannot_be_read_leaves_the_new_one_pending(fake_world: FakeWorld) -> None:
    make(flip)
    new = read_golden(PENDING)
    make_unreadable(GOLDEN)
    made = file_golden(
        golden_name("toy", "trio", "float32"),
        new.header.model_dump(exclude={"format", "num_prompts", "body_sha"}),
        new.prompts,
        GoldenPlace(Path("golden"), [Path("golden")]),
    )
    assert (made.state, made.path.exists()) == (State.PENDING, True)
    assert "cannot be read (Input/output error)" in str(made.review.unreadable)


def test_a_golden_that_cannot_be_read_is_replaced_only_with_a_reason(fake_world: FakeWorld) -> None:
    fake_world.matrix(graph=["off"])
    make(flip)
    GOLDEN.write_bytes(GOLDEN.read_bytes()[:-9])
    with pytest.raises(UsageError, match=r"HARD: the old golden cannot be compared with .*cut off"):
        decide(fake_world)


def test_rejecting_leaves_the_old_golden(fake_world: FakeWorld) -> None:
    before = GOLDEN.read_bytes()
    make(flip)
    reject(find_pending([GOLDEN]))
    assert (GOLDEN.read_bytes(), PENDING.exists()) == (before, False)


@pytest.mark.parametrize(
    ("change", "fault", "says"),
    [
        (flip, "none", "reference moved"),
        (soften, "drift", "engine moved"),
        (soften, "none", "neither moved"),
        (flip, "drift", "both moved"),
    ],
)
def test_after_a_change_of_packages_the_engine_runs_against_the_old_golden(
    fake_world: FakeWorld, change: Callable[[GoldenPrompt], GoldenPrompt], fault: str, says: str
) -> None:
    fake_world.matrix(fault=[fault])
    make_old_soft()
    make(change, {"torch": "2"})
    if says == "both moved":
        with pytest.raises(UsageError, match=f"would accept itself; both moved .*fault={fault}: tokens differ"):
            decide(fake_world)
    moved = decide(fake_world, "known upstream change" if says == "both moved" else None)
    assert str(moved).startswith(says)
    hard = read_golden(GOLDEN).header.hard
    assert (hard.reason if hard else None) == ("known upstream change" if says == "both moved" else None)
    assert not Path("runs").exists()


def test_an_engine_that_cannot_be_asked_is_not_taken_to_agree(fake_world: FakeWorld) -> None:
    make(versions={"torch": "2"})
    with pytest.raises(UsageError, match="no known matrix can run this golden here, so the engine cannot be asked"):
        decide(fake_world, matrices=False)
    assert PENDING.exists()


def test_an_engine_whose_cell_was_skipped_has_not_been_asked(fake_world: FakeWorld) -> None:
    """For want of a device nothing ran: neither a movement nor an agreement."""
    fake_world.matrix(device=["cuda"])
    make(versions={"torch": "2"})
    with pytest.raises(UsageError, match="the engine cannot be asked"):
        decide(fake_world)


def test_in_ci_only_what_is_named_is_accepted_or_rejected(
    fake_world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(flip)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(UsageError, match="CI is set"):
        find_pending([], writes=True)
    assert [one.path for one in find_pending([])] == [PENDING]
    assert [one.path for one in find_pending([GOLDEN], writes=True)] == [PENDING]
    monkeypatch.setenv("CI", "")
    assert len(find_pending([], writes=True)) == 1


def test_paths_without_anything_pending_are_an_error(fake_world: FakeWorld) -> None:
    assert find_pending([]) == []
    with pytest.raises(UsageError, match=r"golden/toy/trio\.jsonl: nothing is pending there"):
        find_pending([GOLDEN])
    with pytest.raises(UsageError, match="nothing is pending there"):
        find_pending([Path("golden")])


def test_a_pending_file_under_another_goldens_name_is_corrupt(fake_world: FakeWorld) -> None:
    make(flip).path.rename(PENDING.with_name("other.jsonl.pending"))
    with pytest.raises(GoldenCorrupt, match=r"it holds toy/trio\.jsonl"):
        find_pending([])


@pytest.mark.parametrize(("reason", "is_hard"), [(None, True), ("why", False), (" ", True), ("", True)])
def test_hard_and_reason_go_together(reason: str | None, is_hard: bool) -> None:
    with pytest.raises(UsageError, match="--hard needs a reason"):
        checked_reason(reason, is_hard=is_hard)


def test_a_reason_is_taken_as_it_is() -> None:
    assert checked_reason("why", is_hard=True) == "why"
    assert checked_reason(None, is_hard=False) is None
