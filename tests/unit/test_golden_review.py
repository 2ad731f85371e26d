"""What changed between two goldens: each class from a planted change."""

from typing import Any

import pytest

from graphcheck.harness.golden.review import ChangeKind, review, version_changes
from graphcheck.schema.golden import Golden, GoldenPrompt, GoldenStep, Quorum
from tests.goldens import golden_of

NOISE = 0.5


def step(token: int, margin: float, *, soft: bool = False) -> GoldenStep:
    return GoldenStep(top=((token, 2.0), (0, 2.0 - margin)), soft=soft)


OLD_STEPS = (step(5, 4.0), step(6, 0.25), step(7, 3.0, soft=True), step(8, 0.75))


def golden(*prompts: GoldenPrompt, **header: Any) -> Golden:
    made = golden_of({"a": (1,)})
    quorum = Quorum(agreed=(), noise=NOISE, num_soft=0)
    return Golden(header=made.header.model_copy(update={"quorum": quorum, **header}), prompts=prompts)


def prompt(*steps: GoldenStep, **changes: Any) -> GoldenPrompt:
    ids = tuple(one.top[0][0] for one in steps)
    made = GoldenPrompt(id="a", prompt_ids=(1,), ids=ids, text="", finish="stop", steps=steps)
    return made.model_copy(update=changes)


def with_step(number: int, new: GoldenStep) -> GoldenPrompt:
    return prompt(*OLD_STEPS[:number], new, *OLD_STEPS[number + 1 :])


@pytest.mark.parametrize(
    ("new", "kind", "at"),
    [
        (prompt(*OLD_STEPS), ChangeKind.SAME, None),
        (with_step(2, step(7, 3.5, soft=True)), ChangeKind.MARGINS, 2),
        (with_step(3, step(8, 0.75, soft=True)), ChangeKind.MARGINS, 3),
        (with_step(1, step(9, 4.0)), ChangeKind.SOFT, 1),
        (with_step(2, step(9, 4.0)), ChangeKind.SOFT, 2),
        (with_step(3, step(9, 0.1)), ChangeKind.HARD, 3),
        (with_step(0, step(9, 0.1)), ChangeKind.HARD, 0),
        (prompt(*OLD_STEPS[:3]), ChangeKind.HARD, 3),
        (prompt(*OLD_STEPS[:3], finish="length"), ChangeKind.OTHER, 3),
        (prompt(*OLD_STEPS, prompt_ids=(2,)), ChangeKind.OTHER, None),
        (prompt(*OLD_STEPS, id="b"), ChangeKind.OTHER, None),
    ],
)
def test_a_changed_prompt(new: GoldenPrompt, kind: ChangeKind, at: int | None) -> None:
    found = review(golden(prompt(*OLD_STEPS)), golden(new))
    assert found.kind is kind
    assert found.changes[0].step == at
    assert found.moved is (kind in (ChangeKind.SOFT, ChangeKind.HARD))


def test_what_follows_from_a_flip_at_a_soft_step_is_not_hard() -> None:
    new = prompt(OLD_STEPS[0], step(9, 1.0), step(9, 1.0), step(9, 1.0))
    assert review(golden(prompt(*OLD_STEPS)), golden(new)).kind is ChangeKind.SOFT


def test_the_old_noise_counts_and_not_the_new_one() -> None:
    """Otherwise a noisier reference would make its own flips soft."""
    new = golden(with_step(3, step(9, 1.0)), quorum=Quorum(agreed=(), noise=100.0, num_soft=0))
    assert review(golden(prompt(*OLD_STEPS)), new).kind is ChangeKind.HARD


def test_the_gravest_prompt_stands_for_the_golden() -> None:
    old = golden(prompt(*OLD_STEPS), prompt(*OLD_STEPS, id="b"))
    new = golden(with_step(3, step(9, 1.0)), prompt(*OLD_STEPS, id="b"))
    found = review(old, new)
    assert (found.kind, [change.prompt for change in found.of(ChangeKind.SAME)]) == (ChangeKind.HARD, ["b"])


def test_what_the_headers_disagree_on_is_named() -> None:
    old = golden(prompt(*OLD_STEPS), versions={"torch": "1"}, model={"config": "x", "weights": "y"})
    new = golden(prompt(*OLD_STEPS), versions={"torch": "2"}, model={"config": "x", "weights": "z"}, suite_sha="other")
    assert review(old, new).header == ("model.weights", "suite_sha", "versions.torch 1 -> 2")


def test_only_packages_make_an_environment() -> None:
    old = golden(prompt(*OLD_STEPS), versions={"torch": "1"})
    assert review(old, golden(prompt(*OLD_STEPS), versions={"torch": "2"})).environment_changed
    assert not review(old, golden(prompt(*OLD_STEPS), versions={"torch": "1"})).environment_changed
    assert not review(old, golden(prompt(*OLD_STEPS), versions={"torch": "2"}, suite_sha="x")).environment_changed
    assert version_changes({"torch": "1", "gone": "1"}, {"torch": "1"}) == ["versions.gone 1 -> none"]
