"""Owns the quorum: whether independent computations agree on a golden's tokens, and which of its steps are soft.

The noise bound is measured, not chosen: it is the farthest that any margin of the best token, over an id that both
computations report, moved from one to the other. Only steps count at which the other computation gives the golden's
token, or a disagreement would excuse itself.
"""

from collections.abc import Iterator, Mapping, Sequence

from graphcheck.harness.files.golden_store import shortest_float32
from graphcheck.harness.files.suite_file import LoadedSuite
from graphcheck.harness.golden.oracles import right_answer
from graphcheck.schema.errors import GoldenDisputed
from graphcheck.schema.golden import GoldenPrompt, GoldenStep, Quorum

Top = tuple[tuple[int, float], ...]
"""The best (id, logit) of one step, best first; empty where its logits were not finite."""

Readings = Mapping[str, Sequence[Top]]
"""Prompt id -> what another computation says at every step, fed with the golden's tokens."""

_TODO = "find out which of the two is wrong; a golden that is disputed proves nothing"


def mark_soft(
    prompts: Sequence[GoldenPrompt], second: Readings, in_dtype: Readings, agreed: tuple[str, ...]
) -> tuple[tuple[GoldenPrompt, ...], Quorum]:
    """The prompts with their soft steps marked, and what the header says of them.

    A step is soft where one of the others gives another token, or where its margin is within the noise.

    Args:
        second: a computation that is independent of the golden's and at least as exact.
        in_dtype: one in the arithmetic of the golden's dtype, which may be far less exact.
        agreed: the computations by name.

    Raises:
        GoldenDisputed: `second` gives another token where the margin is above the noise, or most steps are soft.
    """
    noise = measured_noise(prompts, (second, in_dtype))
    marked = tuple(_marked(prompt, second[prompt.id], in_dtype[prompt.id], noise) for prompt in prompts)
    soft = [step.soft for prompt in marked for step in prompt.steps]
    if 2 * sum(soft) > len(soft):
        raise GoldenDisputed(
            f"{sum(soft)} of {len(soft)} steps are soft",
            f"most margins are within the noise of {noise:.3g} logits between two computations",
            "use a model or a dtype that is surer of its answers",
        )
    return marked, Quorum(agreed=agreed, noise=noise, num_soft=sum(soft))


def measured_noise(prompts: Sequence[GoldenPrompt], others: Sequence[Readings]) -> float:
    """Logits by which a margin moved, at most, from the golden's computation to another."""
    moved = (
        movement
        for readings in others
        for prompt in prompts
        for token, step, top in zip(prompt.ids, prompt.steps, readings[prompt.id], strict=True)
        if _says(top, token)
        for movement in movements(step, top)
    )
    return shortest_float32(max(moved, default=0.0))


def movements(step: GoldenStep, top: Top) -> Iterator[float]:
    """For each further id that both name, by how many logits the best one's margin over it moved."""
    others = dict(top)
    (best, logit), *further = step.top
    for token, other in further:
        if best in others and token in others:
            yield abs((logit - other) - (others[best] - others[token]))


def check_answers(model: str, suite: LoadedSuite, prompts: Sequence[GoldenPrompt]) -> int:
    """How many prompts have a right answer of their own, all of them as the golden has it.

    A golden that ends at its number of tokens need only begin like the answer.

    Raises:
        GoldenDisputed: a right answer is another one.
    """
    num_checked = 0
    for given, prompt in zip(suite.suite.prompts, prompts, strict=True):
        right = right_answer(model, given.text)
        if right is None:
            continue
        num_checked += 1
        if prompt.text != right and not (prompt.finish == "length" and f"{right} ".startswith(f"{prompt.text} ")):
            raise GoldenDisputed(
                f"prompt {prompt.id}: {prompt.text!r}", f"the right answer of {model} is {right!r}", _TODO
            )
    return num_checked


def _marked(prompt: GoldenPrompt, second: Sequence[Top], in_dtype: Sequence[Top], noise: float) -> GoldenPrompt:
    steps = []
    for number, (token, step, exact, rough) in enumerate(zip(prompt.ids, prompt.steps, second, in_dtype, strict=True)):
        within_noise = step.margin <= noise
        if not _says(exact, token) and not within_noise:
            got = f"token {exact[0][0]}" if exact else "logits that are not finite"
            raise GoldenDisputed(
                f"prompt {prompt.id}, token {number}: {token}",
                f"a second computation gives {got}; the margin of {step.margin:.3g} is above the noise of {noise:.3g}",
                _TODO,
            )
        soft = within_noise or not (_says(exact, token) and _says(rough, token))
        steps.append(step.model_copy(update={"soft": soft}))
    return prompt.model_copy(update={"steps": tuple(steps)})


def _says(top: Top, token: int) -> bool:
    return bool(top) and top[0][0] == token
