"""Owns the fake target's tokens: the rule that gives right answers, and the faults that spoil them."""

from collections.abc import Sequence
from dataclasses import dataclass

from graphcheck.schema.suite import Request

REPEATS = 16


@dataclass(frozen=True)
class Answer:
    """Output ids of one prompt; `finite` tells for each whether its logits were."""

    ids: tuple[int, ...]
    finite: tuple[bool, ...]


def next_token(ids: Sequence[int], vocab_size: int) -> int:
    """The rule: what follows `ids`, prompt and answer so far."""
    return (7 * ids[-1] + 3 * len(ids) + ids[0]) % vocab_size


def right_answer(request: Request, vocab_size: int) -> tuple[int, ...]:
    """The rule applied until a stop id (which is part of the answer) or the token limit."""
    ids = list(request.prompt_ids)
    while len(ids) < len(request.prompt_ids) + request.max_new_tokens:
        ids.append(next_token(ids, vocab_size))
        if ids[-1] in request.stop_ids:
            break
    return tuple(ids[len(request.prompt_ids) :])


def spoiled(
    answer: Sequence[int],
    fault: str,
    vocab_size: int,
    *,
    is_first: bool,
    is_last_rank: bool,
    replayed: bool,
    forced: bool,
) -> Answer:
    """What a rank picks in place of the right answer. The length of an answer is spoiled only by faults that say so.

    A rank that is fed the right tokens (`forced`) picks no token that merely follows from an earlier wrong one.
    """
    ids = list(answer)
    finite = [True] * len(ids)
    off = [(token + 1) % vocab_size for token in ids]
    if (fault == "drift" and is_first) or (fault in ("one_rank", "part") and is_first and is_last_rank):
        ids[1] = off[1]
    elif fault == "derail" and is_first:
        ids[2:] = [off[2], *ids[3:]] if forced else off[2:]
    elif fault == "corrupt" or (fault == "replays_off_by_one" and replayed):
        ids[1:] = off[1:]
    elif fault == "repeat":
        ids[1:] = [off[0]] * (len(ids) - 1 if forced else REPEATS)
        finite = [True] * len(ids)
    elif fault == "loop":
        ids[1:] = [off[0], off[1]] * REPEATS if not forced else ids[1:]
        finite = [True] * len(ids)
    elif fault == "long" and not forced:
        ids += [off[0], off[1]]
        finite = [True] * len(ids)
    elif fault == "not_finite":
        finite[1:] = [False] * (len(ids) - 1)
    elif fault == "short" and not forced:
        ids, finite = ids[:-1], finite[:-1]
    if fault == "part" and is_first and is_last_rank and not forced:
        ids, finite = ids[:2], finite[:2]
    return Answer(tuple(ids), tuple(finite))
