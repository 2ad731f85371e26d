"""The quorum: which steps are soft, which goldens are refused, and where the noise bound comes from."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from graphcheck.harness.files.suite_file import LoadedSuite, load_suite
from graphcheck.harness.golden.oracles import right_answer
from graphcheck.harness.golden.quorum import Top, check_answers, mark_soft
from graphcheck.schema.errors import GoldenDisputed
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.golden import GoldenPrompt, GoldenStep


def top(best: int, margin: float, *, moved: float = 0.0) -> Top:
    """Token `best` before token 9; its logit is `moved` from where the reference has it."""
    return ((best, 5.0 + moved), (9, 5.0 - margin))


def prompt(*tops: Top) -> GoldenPrompt:
    ids = tuple(one[0][0] for one in tops)
    steps = tuple(GoldenStep(top=one) for one in tops)
    return GoldenPrompt(id="a", prompt_ids=(1,), ids=ids, text="", finish="length", steps=steps)


def softs(second: Sequence[Top], in_dtype: Sequence[Top], *tops: Top) -> tuple[list[bool], float]:
    [marked], quorum = mark_soft([prompt(*tops)], {"a": second}, {"a": in_dtype}, ("b",))
    assert quorum.num_soft == sum(step.soft for step in marked.steps)
    assert quorum.agreed == ("b",)
    return [step.soft for step in marked.steps], quorum.noise


REFERENCE = (top(1, 4.0), top(2, 3.0), top(3, 0.5), top(4, 0.25))


def test_without_any_distance_only_an_exact_tie_is_soft() -> None:
    tied = top(5, 0.0)
    assert softs([*REFERENCE, tied], [*REFERENCE, tied], *REFERENCE, tied) == ([False] * 4 + [True], 0.0)


@pytest.mark.parametrize("which", [0, 1])
def test_the_noise_is_how_far_a_margin_moved_in_either_computation(which: int) -> None:
    moved = [top(1, 4.0, moved=0.25), *REFERENCE[1:]]
    others = [REFERENCE, REFERENCE]
    others[which] = tuple(moved)
    assert softs(others[0], others[1], *REFERENCE) == ([False, False, False, True], 0.25)


def test_logits_that_all_move_alike_move_no_margin() -> None:
    second = [tuple((token, logit + 7.0) for token, logit in one) for one in REFERENCE]
    assert softs(second, REFERENCE, *REFERENCE) == ([False] * 4, 0.0)


def test_a_disagreement_within_the_noise_is_soft() -> None:
    second = [top(1, 4.0, moved=-0.25), *REFERENCE[1:3], top(9, 0.1)]
    assert softs(second, REFERENCE, *REFERENCE) == ([False, False, False, True], 0.25)


def test_a_disagreement_above_the_noise_is_disputed_and_does_not_excuse_itself() -> None:
    """Token 9 at step 0 is 4 logits away: if that counted as noise, everything would be within it."""
    second = [((9, 5.0), (1, 1.0)), *REFERENCE[1:]]
    with pytest.raises(GoldenDisputed, match="prompt a, token 0: 1: a second computation gives token 9") as caught:
        mark_soft([prompt(*REFERENCE)], {"a": second}, {"a": REFERENCE}, ())
    assert caught.value.exit_code is ExitCode.GOLDEN


def test_logits_that_are_not_finite_agree_with_nothing() -> None:
    with pytest.raises(GoldenDisputed, match="logits that are not finite"):
        mark_soft([prompt(*REFERENCE)], {"a": [(), *REFERENCE[1:]]}, {"a": REFERENCE}, ())


def test_a_step_that_the_dtype_itself_does_not_hold_is_soft() -> None:
    assert softs(REFERENCE, [*REFERENCE[:2], (), top(9, 1.0)], *REFERENCE) == ([False, False, True, True], 0.0)


def test_a_golden_that_is_mostly_soft_is_disputed() -> None:
    with pytest.raises(GoldenDisputed, match="3 of 4 steps are soft"):
        softs(REFERENCE, [REFERENCE[0], (), (), ()], *REFERENCE)


@pytest.fixture
def suite(tmp_path: Path) -> LoadedSuite:
    (tmp_path / "suites").mkdir()
    prompts = '[{ id = "a", text = "copy ba be bi ; copy", max_new_tokens = 4 }]'
    (tmp_path / "suites" / "s.toml").write_text(f'name = "s"\nprompts = {prompts}\n')
    return load_suite("s", tmp_path / "m.toml")


def answer(text: str, finish: str = "stop") -> list[GoldenPrompt]:
    return [prompt(top(1, 1.0)).model_copy(update={"text": text, "finish": finish})]


@pytest.mark.parametrize(
    ("text", "finish"), [("ba be bi <eos>", "stop"), ("ba be", "length"), ("ba be bi <eos>", "length")]
)
def test_the_probes_golden_has_the_tasks_own_answers(suite: LoadedSuite, text: str, finish: str) -> None:
    assert check_answers("probe", suite, answer(text, finish)) == 1


@pytest.mark.parametrize(
    ("text", "finish"), [("ba be bo <eos>", "stop"), ("ba be", "stop"), ("ba b", "length"), ("be", "length")]
)
def test_another_answer_is_disputed(suite: LoadedSuite, text: str, finish: str) -> None:
    with pytest.raises(GoldenDisputed, match="the right answer of probe is 'ba be bi <eos>'"):
        check_answers("probe", suite, answer(text, finish))


def test_a_model_without_answers_of_its_own_is_not_checked(suite: LoadedSuite) -> None:
    assert check_answers("tiny", suite, answer("anything")) == 0


def test_a_prompt_that_is_no_task_has_no_right_answer() -> None:
    assert right_answer("probe", "copy ba ; copy") == "ba <eos>"
    assert right_answer("probe", "what is this") is None
    assert right_answer("probe", None) is None
