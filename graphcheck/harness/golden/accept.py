"""Owns the decision on pending goldens: what may be accepted, what only with a reason, and the replacing itself."""

from collections.abc import Sequence
from datetime import UTC, datetime

from graphcheck.harness.files.golden_store import golden_bytes, replace_file
from graphcheck.harness.files.matrix_file import LoadedMatrix
from graphcheck.harness.golden.moved import Movement, what_moved
from graphcheck.harness.golden.pending import Pending
from graphcheck.harness.golden.review import ChangeKind
from graphcheck.harness.running.execute import Surroundings
from graphcheck.schema.errors import UsageError
from graphcheck.schema.golden import HardAcceptance

_TODO = "look with `graphcheck golden diff`; if it is right: `graphcheck golden accept --hard --reason TEXT`"


def checked_reason(reason: str | None, *, is_hard: bool) -> str | None:
    """The reason, if changes that need one shall be accepted.

    Raises:
        UsageError: one of the two is given without the other, or the reason is empty.
    """
    if is_hard == bool(reason and reason.strip()):
        return reason
    given = "--hard" if is_hard else "--reason"
    raise UsageError(given, "--hard needs a reason, and a reason needs --hard", "write --hard --reason TEXT")


def accept(
    waiting: Sequence[Pending],
    reason: str | None,
    matrices: Sequence[LoadedMatrix],
    model: str | None = None,
    surroundings: Surroundings | None = None,
) -> list[Movement | None]:
    """Replaces the goldens, all checked before the first is, and says of each what moved if its environment changed.

    Where a folder cannot be written those before it are accepted, and the others still wait.

    Args:
        reason: why changes that need one are right; kept in the files of those.
        matrices, model, surroundings: for asking the engine, see `what_moved`.

    Raises:
        UsageError: a change needs a reason and has none, or the engine cannot be asked.
        FileError: a folder cannot be written.
    """
    moved = [what_moved(one, matrices, model, surroundings) for one in waiting]
    for one, movement in zip(waiting, moved, strict=True):
        _check(one, movement, reason)
    for one, movement in zip(waiting, moved, strict=True):
        _replace(one, reason if _objection(one, movement) else None)
    return moved


def reject(waiting: Sequence[Pending]) -> None:
    """Throws pending goldens away; the old ones stay as they are."""
    for one in waiting:
        one.path.unlink()


def _check(pending: Pending, movement: Movement | None, reason: str | None) -> None:
    if reason is None and (rule := _objection(pending, movement)):
        raise UsageError(str(pending.path), f"{rule}; {movement}" if movement else rule, _TODO)


def _objection(pending: Pending, movement: Movement | None) -> str | None:
    """What speaks against a change unless somebody says why it is right."""
    against = pending.review
    if against.unreadable:
        return f"HARD: the old golden cannot be compared with ({against.unreadable})"
    if against.kind is ChangeKind.HARD:
        return f"HARD: tokens changed whose margins were above the noise, in {', '.join(_flipped(pending))}"
    if movement is not None and movement.both:
        return "a fault that engine and reference share would accept itself"
    return None


def _flipped(pending: Pending) -> list[str]:
    kinds = (ChangeKind.HARD, ChangeKind.SOFT)
    return [change.prompt for kind in kinds for change in pending.review.of(kind)]


def _replace(pending: Pending, reason: str | None) -> None:
    new, old = pending.review.new, pending.review.old
    fields = new.header.model_dump(exclude={"format", "num_prompts", "body_sha"})
    if reason is not None:
        fields["hard"] = HardAcceptance(
            reason=reason,
            prompts=tuple(_flipped(pending)),
            replaced_body_sha=old.header.body_sha if old else "",
            on=datetime.now(UTC).date().isoformat(),
        ).model_dump()
    replace_file(pending.golden_path, golden_bytes(fields, new.prompts))
    pending.path.unlink()
