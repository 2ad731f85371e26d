"""Owns the lines that explain one cell that is no plain PASS: where its ranks stand, who died, what an audit saw."""

import re
from collections.abc import Collection, Iterator
from itertools import islice

from graphcheck.harness.judging.death import describe_exit, first_line, is_bad
from graphcheck.report import words
from graphcheck.report.differences import differences, near_tie_lines
from graphcheck.schema.events import ErrorEvent
from graphcheck.schema.journal import Journal, Tag
from graphcheck.schema.run import AttemptFinished, RecordedAttempt, Stall

MOST_TAGS = 3
MOST_FRAMES = 4
MOST_ERRORS = 3
MOST_FINDINGS = 3

_FRAME = re.compile(r'File "(?:.*/)?(?P<file>[^"/]+)", line (?P<line>\d+),? in (?P<function>\S+)')


def explain(attempt: RecordedAttempt) -> list[str]:
    """The story of a cell that is not a plain PASS: its reason first, then the evidence. Empty for a plain PASS."""
    finished = attempt.finished
    if finished is None:
        return ["the run ended before this cell had a verdict"]
    if finished.verdict.is_green:
        return _green(finished)
    lines = [finished.reason]
    lines += _story(finished)
    if finished.facts.stall is not None:
        lines += _ranks(finished.facts.stall)
    lines += _deaths(finished)
    lines += differences(finished)
    lines += _audit(finished)
    return lines


def brief(finished: AttemptFinished) -> list[str]:
    """The same without tags, stacks and all but the first difference; of a hang, no tokens at all: they follow."""
    if finished.verdict.is_green:
        return _green(finished)
    lines = [finished.reason, *_story(finished)]
    stall = finished.facts.stall
    if stall is not None:
        return [*lines, *_mismatch(stall), *(_rank(journal, stall) for journal in stall.journals)]
    return [*lines, *_deaths(finished), *islice(differences(finished), 1), *_audit(finished)]


def _green(finished: AttemptFinished) -> list[str]:
    return [*filter(None, [finished.reason]), *near_tie_lines(finished)]


def _story(finished: AttemptFinished) -> Iterator[str]:
    """How the ranks came apart, in the order in which it happened, and what the forced pass says of the cause."""
    story = finished.story
    if story is None:
        return
    if story.disagreement is not None:
        split = story.disagreement
        picked = ", ".join(f"rank {rank} picked {token}" for rank, token in sorted(split.tokens.items()))
        where = f"engine step {split.step}, prompt {split.prompt!r}, token {split.index}"
        yield f"ranks first disagreed at {where}: {picked}"
    if story.split is not None:
        parted = story.split
        where = f"engine step {parted.step}, prompt {parted.prompt!r}, token {parted.index}"
        yield f"ranks' logits first differed at {where}"
    if story.parting is not None:
        ran = ", ".join(f"rank {rank} ran {batch}" for rank, batch in sorted(story.parting.batches.items()))
        # Ranks whose numbers differ were in no common step; each batch then tells its own.
        is_common = not any(" as its step " in batch for batch in story.parting.batches.values())
        yield f"their batches parted{f' at engine step {story.parting.step}' if is_common else ''}: {ran}"
    if story.cause:
        yield f"forced pass: {story.cause}"


def _ranks(stall: Stall) -> Iterator[str]:
    """Where each rank stands, and which collectives it announced last: two that differ there never meet."""
    yield from _mismatch(stall)
    for journal in stall.journals:
        yield _rank(journal, stall)
        if journal.tags:
            yield f"  last tags {', '.join(map(_tag, journal.tags[-MOST_TAGS:]))}"
        frames = [f"{frame['function']} ({frame['file']}:{frame['line']})" for frame in _frames(stall, journal.rank)]
        if frames:
            yield f"  stack {' < '.join(frames)}"
        elif journal.rank in stall.stacks:
            yield f"  no stack: {stall.stacks[journal.rank] or 'it did not answer'}"


def _mismatch(stall: Stall) -> Iterator[str]:
    """The first collective that ranks announced differently; the site alone may differ."""
    announced: dict[int, dict[tuple[str, int, int], list[int]]] = {}
    for journal in stall.journals:
        for tag in journal.tags:
            kind = (tag.kind, tag.rows, tag.nbytes)
            announced.setdefault(tag.number, {}).setdefault(kind, []).append(journal.rank)
    for number in sorted(announced):
        if len(announced[number]) > 1:
            sides = (
                f"{_ranks_named(ranks)}: {kind} of {words.counted(rows, 'row')}, {nbytes} bytes"
                for (kind, rows, nbytes), ranks in announced[number].items()
            )
            yield f"collective #{number} does not match: {'; '.join(sides)}"
            return


def _ranks_named(ranks: Collection[int]) -> str:
    """`rank 1`, `ranks 0, 2`."""
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, sorted(ranks)))}"


def _rank(journal: Journal, stall: Stall) -> str:
    """Where a rank stands, and whom it waits for."""
    missing = [peer.rank for peer in stall.journals if _is_awaited(peer, journal)]
    waits = f"; waits for {_ranks_named(missing)}" if missing else ""
    return f"rank {journal.rank}: {_where(journal)}{waits}"


def _is_awaited(peer: Journal, journal: Journal) -> bool:
    """True if `peer` has not come to the collective that a waiting rank announced last, or has announced another."""
    if peer.rank == journal.rank or journal.waiting is None or not journal.tags:
        return False
    mine = journal.tags[-1]
    theirs = next((tag for tag in peer.tags if tag.number == mine.number), None)
    if theirs is None:
        return peer.collective < mine.number
    return (theirs.kind, theirs.rows, theirs.nbytes) != (mine.kind, mine.rows, mine.nbytes)


def _where(journal: Journal) -> str:
    if journal.finished:
        replay = journal.trail.replay if journal.trail is not None else None
        return "finished" if replay is None else f"finished, its last step was replay {replay}"
    where = f"{journal.phase}, step {journal.step}, {_progress(journal)}"
    if journal.waiting is None:
        return where
    seconds = "" if journal.waiting_seconds is None else f" for {journal.waiting_seconds:.1f} s"
    return f"{where}, in {journal.waiting}{seconds}"


def _progress(journal: Journal) -> str:
    """Tags tell how far the host has come, a trail how far the device has; where there are tags they say it all."""
    trail = journal.trail
    if journal.tags or trail is None:
        return f"collective {journal.collective}"
    step = f"replay {trail.replay}" if trail.replay is not None else "its eager step"
    if trail.is_over:
        return f"has passed every site of {step}"
    if trail.inside is not None:
        return f"inside collective {trail.collective} ({trail.inside}) of {step}"
    return f"past {trail.last} in {step}" if trail.last is not None else f"at the start of {step}"


def _tag(tag: Tag) -> str:
    return f"#{tag.number} {tag.kind} rows={tag.rows} bytes={tag.nbytes} {tag.site}"


def _frames(stall: Stall, rank: int) -> list[re.Match[str]]:
    return list(_FRAME.finditer(stall.stacks.get(rank, "")))[:MOST_FRAMES]


def _deaths(finished: AttemptFinished) -> Iterator[str]:
    """Errors and silent deaths, ranks that say the same together; of what the reason has told, only where it arose."""
    told: dict[str, set[int]] = {}
    for error in finished.facts.errors:
        is_news = error.consequence or first_line(error.message) not in finished.reason
        if text := (_error(error) if is_news else _raised(error)):
            told.setdefault(f"{error.phase}: {text}", set()).add(error.rank)
    for text, ranks in islice(told.items(), MOST_ERRORS):
        yield f"{_ranks_named(ranks)}, {text}"
    if len(told) > MOST_ERRORS:
        yield f"and {words.counted(len(told) - MOST_ERRORS, 'more error')}"
    speakers = {error.rank for error in finished.facts.errors}
    for event in finished.facts.exits:
        if is_bad(event) and event.rank not in speakers and describe_exit(event) not in finished.reason:
            yield describe_exit(event)


def _error(error: ErrorEvent) -> str:
    what = f"prompt {error.request!r}: " if error.request is not None else ""
    later = " (after another rank had failed)" if error.consequence else ""
    return ", ".join(filter(None, (f"{what}{error.error}: {first_line(error.message)}{later}", _raised(error))))


def _raised(error: ErrorEvent) -> str:
    """`raised at engine.py:204 in _decode`; empty if no traceback tells it. Of a refusal it would tell nothing more."""
    frames = [] if error.kind == "request" else list(_FRAME.finditer(error.traceback))
    return f"raised at {frames[-1]['file']}:{frames[-1]['line']} in {frames[-1]['function']}" if frames else ""


def _audit(finished: AttemptFinished) -> Iterator[str]:
    """Breaches of the replay contract, which need no wrong token to be real."""
    findings = [
        f"audit, rank {rank}, replay {finding.replay}: {finding.clause} of {finding.buffer}: {finding.detail}"
        for rank, evidence in sorted(finished.facts.evidence.items())
        for finding in evidence.audit or ()
    ]
    yield from findings[:MOST_FINDINGS]
    if len(findings) > MOST_FINDINGS:
        yield f"and {words.counted(len(findings) - MOST_FINDINGS, 'more finding')} of the audit"
