"""Owns the probe's tasks: seeded prompts, the right answer to any prompt text, and the words of both. No tensors.

An item of a prompt may come again, but never after the same word, so that the last two words decide the next one, and
each KV slot of what is still to be said is needed to say it. `copy`, `recall` and `needle` repeat items in their
order, `reverse` in the opposite one, and `count` goes on by the step between its first two items until the last.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
END, ASK = ";", "?"
KEYS = tuple("ABCDEFGHIJKLMNOPQRSTUVWX")
ITEMS = tuple(consonant + vowel for consonant in "bdfghjklmnprstvz" for vowel in "aeiou")

MIN_ITEMS = 3
LEAST_POOL = 20
MAX_COPIED = 40
VALUE_ITEMS = (4, 12)
COUNT_STEPS = (1, 5)
COUNT_ITEMS = (3, 12)


@dataclass(frozen=True)
class Task:
    """One task. `draw` makes a prompt that fits, with its answer, <bos> and <eos>, into a number of tokens >= `least`.

    `solve` takes a prompt's words and gives the answer's, without <eos>.
    """

    draw: Callable[[Random, int], list[str]]
    solve: Callable[[list[str]], list[str]]
    least: int


@dataclass(frozen=True)
class Example:
    """A prompt text (the tokenizer adds <bos>) and its right answer, <eos> last; words are separated by blanks."""

    text: str
    answer: str

    @property
    def num_tokens(self) -> int:
        """Tokens of prompt and answer together, <bos> and <eos> included."""
        return 1 + len(self.text.split()) + len(self.answer.split())


def draw(task: str, rng: Random, num_tokens: int) -> Example:
    """A random prompt of `task` that needs at most `num_tokens` tokens, answer included.

    Raises:
        ValueError: the task has no prompt as short as that.
    """
    least = TASKS[task].least
    if num_tokens < least:
        raise ValueError(f"num_tokens = {num_tokens}: {task} needs at least {least}; ask for more")
    text = " ".join(TASKS[task].draw(rng, num_tokens))
    return Example(text, answer(text))


def answer(text: str) -> str:
    """The right answer to a prompt text, <eos> last. Reads nothing but the text.

    Raises:
        ValueError: the first word names no task, or the key asked for is stored more than once.
    """
    words = text.split()
    if not words or words[0] not in TASKS:
        raise ValueError(f"prompt {text!r}: a prompt begins with its task; begin with one of {', '.join(TASKS)}")
    return " ".join([*TASKS[words[0]].solve(words), EOS])


def _items(rng: Random, pool: Sequence[str], after: str, count: int, seen: set[tuple[str, str]]) -> list[str]:
    """`count` items of `pool` that follow the word `after`; no pair is in `seen` already, all are added to it."""
    items: list[str] = []
    while len(items) < count:
        item = rng.choice(pool)
        if (after, item) not in seen:
            seen.add((after, item))
            items.append(item)
            after = item
    return items


def _pool(rng: Random) -> list[str]:
    """The items that one prompt draws from: the fewer, the more often each comes again."""
    return rng.sample(ITEMS, rng.randint(LEAST_POOL, len(ITEMS)))


def _draw_copy(rng: Random, num_tokens: int) -> list[str]:
    count = min(MAX_COPIED, (num_tokens - 5) // 2)
    return ["copy", *_items(rng, _pool(rng), "copy", count, set()), END, "copy"]


def _solve_copy(words: list[str]) -> list[str]:
    return words[1 : words.index(END)]


def _draw_recall(rng: Random, num_tokens: int) -> list[str]:
    """Keys with their values, as many as leave room for the longest value as the answer; one of the keys last."""
    least, most = VALUE_ITEMS[0], min(VALUE_ITEMS[1], (num_tokens - 9) // 3)
    room = num_tokens - 5 - most
    words = ["recall"]
    keys: list[str] = []
    pool = _pool(rng)
    seen: set[tuple[str, str]] = set()
    while room >= most + 2 and len(keys) < len(KEYS):
        key = rng.choice([key for key in KEYS if key not in keys])
        keys.append(key)
        entry = [key, *_items(rng, pool, key, rng.randint(least, most), seen), END]
        words += entry
        room -= len(entry)
    return [*words, ASK, rng.choice(keys)]


def _solve_recall(words: list[str]) -> list[str]:
    if words.count(words[-1]) > 2:
        raise ValueError(f"key {words[-1]!r} is stored twice: two answers are right; store it once")
    begin = words.index(words[-1]) + 1
    return words[begin : words.index(END, begin)]


def _draw_needle(rng: Random, num_tokens: int) -> list[str]:
    """One key with its value, then nothing but other items, as far as they reach; the key last."""
    least, most = VALUE_ITEMS[0], min(VALUE_ITEMS[1], (num_tokens - 7) // 2)
    pool, key = _pool(rng), rng.choice(KEYS)
    seen: set[tuple[str, str]] = set()
    value = _items(rng, pool, key, rng.randint(least, most), seen)
    hay = _items(rng, pool, END, num_tokens - 7 - 2 * len(value), seen)
    return ["needle", key, *value, END, *hay, ASK, key]


def _draw_reverse(rng: Random, num_tokens: int) -> list[str]:
    count = min(MAX_COPIED, (num_tokens - 5) // 2)
    return ["reverse", *_items(rng, _pool(rng), "reverse", count, set()), END, "reverse"]


def _solve_reverse(words: list[str]) -> list[str]:
    return words[1 : words.index(END)][::-1]


def _draw_count(rng: Random, num_tokens: int) -> list[str]:
    """The first two items of a progression in the order of ITEMS, and its last."""
    step, count = rng.randint(*COUNT_STEPS), rng.randint(COUNT_ITEMS[0], min(COUNT_ITEMS[1], num_tokens - 7))
    first = rng.randrange(len(ITEMS) - step * (count + 1))
    return ["count", ITEMS[first], ITEMS[first + step], ASK, ITEMS[first + step * (count + 1)]]


def _solve_count(words: list[str]) -> list[str]:
    first, second, last = (ITEMS.index(word) for word in (words[1], words[2], words[-1]))
    return list(ITEMS[2 * second - first : last + 1 : second - first])


TASKS: dict[str, Task] = {
    "copy": Task(_draw_copy, _solve_copy, least=2 * MIN_ITEMS + 5),
    "recall": Task(_draw_recall, _solve_recall, least=5 + 2 * (VALUE_ITEMS[0] + 2) + VALUE_ITEMS[0]),
    "needle": Task(_draw_needle, _solve_recall, least=7 + 2 * VALUE_ITEMS[0]),
    "reverse": Task(_draw_reverse, _solve_reverse, least=2 * MIN_ITEMS + 5),
    "count": Task(_draw_count, _solve_count, least=7 + COUNT_ITEMS[0]),
}
VOCABULARY = (PAD, BOS, EOS, END, ASK, *TASKS, *KEYS, *ITEMS)
"""Every word, in order of its token id."""
