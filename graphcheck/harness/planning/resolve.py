"""Owns turning a suite into what a target runs: text into ids, the stop rule into explicit stop ids."""

import random
from collections.abc import Callable, Sequence

from graphcheck.harness.files.golden_store import REGEN, made_again_by
from graphcheck.harness.files.model_folder import ModelFolder
from graphcheck.harness.files.suite_file import LoadedSuite
from graphcheck.schema.errors import GoldenStale
from graphcheck.schema.golden import Golden, GoldenPrompt
from graphcheck.schema.suite import Prompt, Request, Workload


def resolve_for_golden(suite: LoadedSuite, model: ModelFolder) -> Workload:
    """What the reference runs to make the golden: each prompt once, stopped by the model's EOS alone.

    Raises:
        SuiteError: a prompt does not fit the model's vocabulary or context.
        ModelError: a prompt is text and the folder has no usable tokenizer.
    """

    def request(prompt: Prompt, prompt_ids: tuple[int, ...]) -> Request:
        return Request(
            id=prompt.id, prompt_ids=prompt_ids, max_new_tokens=prompt.max_new_tokens, stop_ids=model.eos_ids
        )

    return Workload(suite=suite.name, requests=_requests(suite, model, request))


def resolve(
    suite: LoadedSuite, model: ModelFolder, golden: Golden, *, ignore_eos: bool = False, regen: str = REGEN
) -> Workload:
    """What a target under test runs.

    Args:
        golden: the suite's golden for this model; says which ids the stop rule must leave alone.
        ignore_eos: no stop ids at all; each prompt ends at its golden's number of tokens.
        regen: the command that makes the golden, for the error.

    Raises:
        SuiteError: a prompt does not fit the model, or the stop rule asks for more ids than are free.
        ModelError: a prompt is text and the folder has no usable tokenizer.
        GoldenStale: the golden was made for other prompt ids.
    """

    def request(prompt: Prompt, prompt_ids: tuple[int, ...]) -> Request:
        answer = golden.prompt(prompt.id)
        if answer.prompt_ids != prompt_ids:
            raise GoldenStale(
                f"golden of {model.name}/{suite.name}: prompt {prompt.id}",
                "its prompt_ids are not what the tokenizer gives now",
                made_again_by(regen),
            )
        return Request(
            id=prompt.id,
            prompt_ids=prompt_ids,
            arrival=prompt.arrival,
            max_new_tokens=len(answer.ids) if ignore_eos else prompt.max_new_tokens,
            stop_ids=() if ignore_eos else (*model.eos_ids, *_drawn_stop_ids(suite, model, answer)),
        )

    return Workload(suite=suite.name, passes=suite.suite.passes, requests=_requests(suite, model, request))


def forced_workload(workload: Workload, answers: Sequence[GoldenPrompt]) -> Workload:
    """The same workload with the tokens of these answers, one a prompt, to be fed on in place of the engine's own."""
    tokens = {answer.id: answer.ids for answer in answers}
    requests = tuple(request.model_copy(update={"forced_ids": tokens[request.id]}) for request in workload.requests)
    return workload.model_copy(update={"requests": requests})


def _requests(
    suite: LoadedSuite, model: ModelFolder, request: Callable[[Prompt, tuple[int, ...]], Request]
) -> tuple[Request, ...]:
    return tuple(
        request(prompt, _prompt_ids(suite, model, number, prompt)) for number, prompt in enumerate(suite.suite.prompts)
    )


def _prompt_ids(suite: LoadedSuite, model: ModelFolder, number: int, prompt: Prompt) -> tuple[int, ...]:
    source = "ids" if prompt.text is None else "text"
    try:
        ids = prompt.ids if prompt.text is None else model.encode(prompt.text)
    except ValueError as failure:
        raise suite.file.wrong(
            ("prompts", number, source), f"not in the vocabulary of {model.name} ({failure})", "use the model's words"
        ) from None
    if not ids:
        raise suite.file.wrong(("prompts", number, source), f"no token of {model.name} at all", "write a longer prompt")
    if strangers := sorted({token for token in ids if not 0 <= token < model.vocab_size}):
        raise suite.file.wrong(
            ("prompts", number, source),
            f"token {strangers[0]} is outside the vocabulary of {model.name}",
            f"use ids from 0 to {model.vocab_size - 1}",
        )
    if len(ids) + prompt.max_new_tokens > model.max_context:
        raise suite.file.wrong(
            ("prompts", number, "max_new_tokens"),
            f"{len(ids)} prompt and {prompt.max_new_tokens} new tokens exceed the context of {model.name}, "
            f"{model.max_context}",
            "shorten the prompt or ask for fewer tokens",
        )
    return ids


def _drawn_stop_ids(suite: LoadedSuite, model: ModelFolder, answer: GoldenPrompt) -> tuple[int, ...]:
    """The stop rule's ids for one prompt, ascending: a function of seed, prompt id, vocabulary and golden alone."""
    rule = suite.suite.stop
    if rule is None:
        return ()
    free = sorted(set(range(model.vocab_size)) - set(answer.ids) - set(model.eos_ids))
    num_drawn = round(rule.fraction * model.vocab_size)
    if num_drawn > len(free):
        raise suite.file.wrong(
            ("stop", "fraction"),
            f"asks for {num_drawn} stop ids and prompt {answer.id} leaves {len(free)} of {model.vocab_size} free",
            "lower the fraction",
        )
    return tuple(sorted(random.Random(f"{rule.seed}:{answer.id}").sample(free, num_drawn)))
