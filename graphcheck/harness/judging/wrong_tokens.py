"""Owns where in batches and sequences the wrong tokens of an attempt are, as counts. Draws no conclusion from them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from graphcheck.harness.judging.transcript import Token, Transcript, TranscriptKey
from graphcheck.schema.golden import Golden, GoldenPrompt
from graphcheck.schema.run import Tally, WrongTokens


@dataclass(frozen=True)
class _Judged:
    """One decoded token; `length` is that of its sequence, prompt included, once it was picked."""

    token: Token
    length: int
    is_wrong: bool


def wrong_tokens(
    golden: Golden, answers: Mapping[TranscriptKey, Transcript], forced: Mapping[TranscriptKey, Transcript]
) -> WrongTokens | None:
    """The counts over every prompt, once each; None if no decoded token is wrong.

    Where a forced pass shows any, its steps count, each judged on its own; else those of the free pass, each answer up
    to its first wrong token, since what follows is a consequence. Prefill, which is no batch, is left out.
    """
    judged = list(_judged(golden, forced.values(), to_first=False))
    if not any(one.is_wrong for one in judged):
        judged = list(_judged(golden, answers.values(), to_first=True))
    wrong = [one.length for one in judged if one.is_wrong]
    if not wrong:
        return None
    batched = [one for one in judged if one.token.bucket is not None]
    shortest = min(wrong)
    return WrongTokens(
        lanes={
            lane: _tally(one for one in batched if one.token.lane == lane)
            for lane in sorted({one.token.lane for one in batched})
        },
        padded=_tally(one for one in batched if one.token.live < (one.token.bucket or 0)),
        full=_tally(one for one in batched if one.token.live == one.token.bucket),
        shortest=shortest,
        shorter=_tally(one for one in judged if one.length < shortest),
        longer=_tally(one for one in judged if one.length >= shortest),
    )


def _judged(golden: Golden, answers: Iterable[Transcript], *, to_first: bool) -> Iterator[_Judged]:
    known = {prompt.id: prompt for prompt in golden.prompts}
    for answer in _one_a_prompt([answer for answer in answers if answer.prompt in known], known):
        right = known[answer.prompt]
        for index, (token, expected) in enumerate(zip(answer.tokens, right.ids, strict=False)):
            is_wrong = token.id != expected or not token.finite
            if index:
                yield _Judged(token, len(right.prompt_ids) + index + 1, is_wrong)
            if is_wrong and to_first:
                break


def _one_a_prompt(answers: Sequence[Transcript], right: Mapping[str, GoldenPrompt]) -> Iterable[Transcript]:
    """Ranks compute the same tokens, passes repeat them: the first wrong answer stands for all, or the first one."""
    chosen: dict[str, Transcript] = {}
    for answer in answers:
        before = chosen.setdefault(answer.prompt, answer)
        if before.ids == right[answer.prompt].ids != answer.ids:
            chosen[answer.prompt] = answer
    return chosen.values()


def _tally(judged: Iterable[_Judged]) -> Tally:
    found = list(judged)
    return Tally(wrong=sum(one.is_wrong for one in found), total=len(found))
