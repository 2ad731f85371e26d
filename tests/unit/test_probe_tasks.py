"""Owns the tests of the probe's tasks: what they draw, and the answers that serve as a third oracle."""

from itertools import pairwise
from random import Random

import pytest

from graphcheck.models.probe_tasks import BOS, EOS, ITEMS, TASKS, VOCABULARY, answer, draw

MOST_TOKENS = 128
CASES = [(task, num_tokens) for task in TASKS for num_tokens in (TASKS[task].least, 40, 77, MOST_TOKENS)]


def drawn(task: str, num_tokens: int, count: int = 50) -> list[tuple[list[str], list[str]]]:
    """Words of prompt and answer, from one seed."""
    rng = Random(f"{task} {num_tokens}")
    examples = [draw(task, rng, num_tokens) for _ in range(count)]
    return [(example.text.split(), example.answer.split()) for example in examples]


def repeated_pairs(words: list[str]) -> list[tuple[str, str]]:
    """Pairs (word, item after it) that come more than once; from one of them an answer could go on two ways."""
    pairs = [(before, item) for before, item in pairwise(words) if item in ITEMS]
    return [pair for pair in set(pairs) if pairs.count(pair) > 1]


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("copy ba be ba ; copy", "ba be ba <eos>"),
        ("recall A ba be bi bo ; B du du di ba bu ; ? A", "ba be bi bo <eos>"),
        ("recall A ba be bi bo ; B du du di ba bu ; ? B", "du du di ba bu <eos>"),
        ("needle A ba be bi bo ; du du di ba bu ? A", "ba be bi bo <eos>"),
        ("reverse ba be ba bi ; reverse", "bi ba be ba <eos>"),
        ("count ba be ? du", "bi bo bu da de di do du <eos>"),
        ("count ba bi ? do", "bu de do <eos>"),
    ],
)
def test_answer_reads_the_text_alone(text: str, right: str) -> None:
    assert answer(text) == right


@pytest.mark.parametrize("text", ["", "ba be", "repeat ba be ; repeat"])
def test_text_of_no_task_is_an_error_that_names_the_tasks(text: str) -> None:
    with pytest.raises(ValueError, match="copy, recall"):
        answer(text)


@pytest.mark.parametrize("task", TASKS)
def test_too_few_tokens_is_an_error_that_says_how_many(task: str) -> None:
    with pytest.raises(ValueError, match=f"at least {TASKS[task].least}"):
        draw(task, Random(0), TASKS[task].least - 1)


@pytest.mark.parametrize(("task", "num_tokens"), CASES)
def test_drawn_prompts_fit_and_have_long_enough_answers_in_known_words(task: str, num_tokens: int) -> None:
    for prompt, right in drawn(task, num_tokens):
        assert 1 + len(prompt) + len(right) <= num_tokens
        assert len(right) >= 4
        assert right[-1] == EOS
        assert EOS not in right[:-1]
        assert {*prompt, *right, BOS} <= set(VOCABULARY)


@pytest.mark.parametrize(("task", "num_tokens"), [case for case in CASES if case[0] != "count"])
def test_answer_is_a_run_of_the_prompt_that_two_words_decide(task: str, num_tokens: int) -> None:
    for prompt, right in drawn(task, num_tokens):
        items = right[:-1][::-1] if task == "reverse" else right[:-1]
        assert any(prompt[i : i + len(items)] == items for i in range(len(prompt)))
        assert repeated_pairs(prompt) == []


def test_count_goes_on_by_its_own_step_until_the_item_that_is_named() -> None:
    for prompt, right in drawn("count", MOST_TOKENS):
        places = [ITEMS.index(word) for word in [*prompt[1:3], *right[:-1]]]
        assert len({after - before for before, after in pairwise(places)}) == 1
        assert right[-2] == prompt[-1]


def test_items_come_again_in_long_prompts() -> None:
    assert all(len(set(right)) < len(right) for _, right in drawn("copy", MOST_TOKENS))


def test_a_pair_that_comes_again_is_noticed() -> None:
    assert repeated_pairs(["copy", "ba", "be", "bi", "ba", "be", ";", "copy"]) == [("ba", "be")]


def test_recall_asks_for_any_of_its_keys() -> None:
    asked = {prompt.index(prompt[-1]) for prompt, _ in drawn("recall", MOST_TOKENS)}
    assert min(asked) == 1
    assert max(asked) > MOST_TOKENS // 2


@pytest.mark.parametrize("task", TASKS)
def test_same_seed_same_prompts_and_another_seed_others(task: str) -> None:
    first, again, other = (draw(task, Random(seed), MOST_TOKENS) for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_vocabulary_is_small_and_says_each_word_once() -> None:
    assert len(set(VOCABULARY)) == len(VOCABULARY) <= 128
    assert all(word.split() == [word] for word in VOCABULARY)
