"""Owns the probe's admission: how right a trained model is on each task, over prompts that training never drew."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from random import Random

import torch
from transformers import LlamaForCausalLM

from graphcheck.models.probe_tasks import BOS, TASKS, VOCABULARY, Example, draw

CHUNK = 64
_ID = {word: number for number, word in enumerate(VOCABULARY)}


@dataclass(frozen=True)
class Score:
    """One task over `num_prompts` prompts: the share answered right from first to last token.

    `min_margin` is the smallest logit distance, over all steps of all prompts, between the right token and the best
    other one; negative if any step was wrong.
    """

    accuracy: float
    num_prompts: int
    min_margin: float


def encode(example: Example) -> tuple[list[int], list[int]]:
    """Token ids of the prompt, <bos> first, and of its right answer, <eos> last."""
    prompt = [_ID[word] for word in (BOS, *example.text.split())]
    return prompt, [_ID[word] for word in example.answer.split()]


def evaluate(model: LlamaForCausalLM, num_prompts: int, most_tokens: int) -> dict[str, Score]:
    """Scores each task over `num_prompts` seeded prompts of every length up to `most_tokens`, answer included."""
    return {task: _score(model, _held_out(task, num_prompts, most_tokens)) for task in TASKS}


def record(scores: dict[str, Score]) -> dict[str, object]:
    """What `admission.json` holds: the tasks that may be shipped, those left out, and why."""
    admitted = [task for task, score in scores.items() if score.accuracy == 1.0]
    return {
        "admitted": admitted,
        "left_out": [task for task in scores if task not in admitted],
        "scores": {task: asdict(score) for task, score in scores.items()},
    }


def _held_out(task: str, num_prompts: int, most_tokens: int) -> list[Example]:
    rng = Random(f"held out {task}")
    return [draw(task, rng, rng.randint(TASKS[task].least, most_tokens)) for _ in range(num_prompts)]


def _score(model: LlamaForCausalLM, examples: Sequence[Example]) -> Score:
    margins = []
    for begin in range(0, len(examples), CHUNK):
        margins += _margins(model, examples[begin : begin + CHUNK])
    right = sum(margin > 0 for margin in margins)
    return Score(right / len(examples), len(examples), round(min(margins), 4))


@torch.no_grad()
def _margins(model: LlamaForCausalLM, examples: Sequence[Example]) -> list[float]:
    """Each example's smallest margin.

    One teacher-forced pass judges what greedy decoding would say: as long as every token is right, both see the same.
    """
    pairs = [encode(example) for example in examples]
    width = max(len(prompt) + len(answer) for prompt, answer in pairs)
    ids = torch.tensor([[*prompt, *answer] + [0] * (width - len(prompt) - len(answer)) for prompt, answer in pairs])
    logits = model(input_ids=ids, use_cache=False).logits
    margins = []
    for row, (prompt, answer) in zip(logits, pairs, strict=True):
        steps = row[len(prompt) - 1 : len(prompt) + len(answer) - 1]  # [len(answer), vocabulary]
        right = torch.tensor(answer)[:, None]
        best_other = steps.scatter(1, right, float("-inf")).amax(1)
        margins.append(float((steps.gather(1, right)[:, 0] - best_other).min()))
    return margins
