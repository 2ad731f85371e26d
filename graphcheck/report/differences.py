"""Owns the lines that tell where tokens first differ, and which differences are near ties."""

from collections.abc import Iterator
from itertools import islice

from graphcheck.harness.judging.patterns import patterns
from graphcheck.report import words
from graphcheck.schema.run import AttemptFinished, PromptResult
from graphcheck.schema.verdicts import Outcome, Verdict

MOST_PROMPTS = 3
MOST_TIES = 6
MOST_ULP = 1000
"""Beyond this a number of ULP says no more than the margin itself."""


def differences(finished: AttemptFinished) -> Iterator[str]:
    """The first differences, near ties last; that an answer was cut off when its attempt ended early says nothing."""
    different = [
        prompt
        for prompt in finished.prompts
        if prompt.step is not None
        and prompt.outcome is not Outcome.NEAR_TIE
        and (prompt.got is not None or finished.verdict is Verdict.TOKENS)
    ]
    for prompt in different[:MOST_PROMPTS]:
        yield _difference(prompt)
    if len(different) > MOST_PROMPTS:
        yield f"and {words.counted(len(different) - MOST_PROMPTS, 'more prompt')}"
    if finished.wrong is not None and (found := patterns(finished.wrong)):
        yield f"wrong tokens come {'; '.join(found)}"
    yield from near_tie_lines(finished)


def near_tie_lines(finished: AttemptFinished) -> Iterator[str]:
    """`near ties: 'a' token 3 (0.39 ULP), 'b' token 1 (0.54 ULP) and 4 more`, if there are any."""
    ties = [(prompt.prompt, tie) for prompt in finished.prompts for tie in prompt.near_ties]
    told = [f"{prompt!r} token {tie.step} ({tie.margin_ulp:.2g} ULP)" for prompt, tie in islice(ties, MOST_TIES)]
    more = f" and {len(ties) - MOST_TIES} more" if len(ties) > MOST_TIES else ""
    if told:
        yield f"near ties: {', '.join(told)}{more}"


def _difference(prompt: PromptResult) -> str:
    expected, got = _token(prompt.expected, prompt.expected_text), _token(prompt.got, prompt.got_text)
    line = f"prompt {prompt.prompt!r}, token {prompt.step}, rank {prompt.rank}: expected {expected}, got {got}"
    line += _margin(prompt)
    if prompt.engine_step is not None:
        bucket = "no bucket" if prompt.bucket is None else f"bucket {prompt.bucket}"
        line += f"; engine step {prompt.engine_step}, lane {prompt.lane} of {prompt.live}, {bucket}"
    if prompt.page is not None:
        line += f"; position {prompt.position}, slot {prompt.slot} of page {prompt.page}"
    return f"{line}; {prompt.outcome}: {prompt.detail}"


def _margin(prompt: PromptResult) -> str:
    """How sure the golden was, and how far below its choice it ranks what came."""
    if prompt.margin is None:
        return ""
    if prompt.got is not None and prompt.margin_ulp is None:
        return f" (golden's margin {prompt.margin:.3g}, what came is not among its best)"
    is_told = prompt.margin_ulp is not None and prompt.margin_ulp < MOST_ULP
    below = f", {prompt.margin_ulp:.3g} ULP above what came" if is_told else ""
    return f" (golden's margin {prompt.margin:.3g}{below})"


def _token(token: int | None, text: str | None) -> str:
    if token is None:
        return "the end"
    return str(token) if text is None else f"{token} {text!r}"
