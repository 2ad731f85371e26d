"""Owns telling which fix's absence a red run looks like, from recorded ablations. Silent unless one stands out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graphcheck import shipped
from graphcheck.schema.run import AttemptFinished, RecordedAttempt, RunInfo
from graphcheck.schema.signatures import CellSignature, Signatures
from graphcheck.schema.verdicts import Outcome

LEAST_LIKENESS = 0.75
"""At least so many prompts of the red cells must go wrong in the recorded way, at the recorded token."""

LEAST_LEAD = 0.25
"""And by so much the next best fix must be less like it."""


_TELL_NOTHING: set[str | None] = {Outcome.EXACT, Outcome.MISSING}
"""Most faults leave some prompts right, and any early hang leaves most of them without tokens."""


@dataclass(frozen=True)
class Likeness:
    """How many prompts of the red cells are as they are with `fix` off, of those that tell anything."""

    fix: str
    alike: int
    prompts: int

    @property
    def share(self) -> float:
        return self.alike / self.prompts


def recorded_signatures() -> Iterator[Signatures]:
    """Those that ship with the package."""
    for path in sorted(shipped.signatures_dir().glob("*.json")):
        yield Signatures.model_validate_json(path.read_bytes())


def looks_like(info: RunInfo, attempts: Sequence[RecordedAttempt], known: Iterator[Signatures]) -> list[str]:
    """``looks like `metadata-refresh` off: 24 of 24 wrong prompts ...``, or nothing."""
    lines = []
    for signatures in known:
        if info.matrix.target == signatures.target and signatures.goldens.items() <= info.goldens.items():
            likenesses = sorted(_likenesses(signatures, attempts), key=lambda one: one.share, reverse=True)
            if likenesses and _stands_out(likenesses):
                best = likenesses[0]
                how = f"{best.alike} of {best.prompts} wrong prompts are wrong alike, from the same token on"
                lines.append(f"looks like `{best.fix}` off: {how}")
    return lines


def signature_of(finished: AttemptFinished) -> CellSignature:
    """What is compared of a cell."""
    prompts = {
        prompt.prompt: prompt.outcome if prompt.step is None else f"{prompt.outcome}@{prompt.step}"
        for prompt in finished.prompts
    }
    return CellSignature(verdict=finished.verdict, prompts=prompts)


def _stands_out(likenesses: Sequence[Likeness]) -> bool:
    best, *others = likenesses
    return best.share >= LEAST_LIKENESS and all(best.share - other.share >= LEAST_LEAD for other in others)


def _likenesses(signatures: Signatures, attempts: Sequence[RecordedAttempt]) -> Iterator[Likeness]:
    """Of the fixes without which the same cells are red, with the same verdicts."""
    ran = {a.started.attempt.cell.name: a.finished for a in attempts if a.finished is not None and a.finished.prompts}
    red = {
        name: signature_of(finished)
        for name, finished in ran.items()
        if name in signatures.cells and not finished.verdict.is_green
    }
    for fix, without in signatures.fixes.items():
        expected = {name: cell for name, cell in without.items() if name in ran}
        if red and {n: c.verdict for n, c in expected.items()} == {n: c.verdict for n, c in red.items()}:
            pairs = [
                (expected[name].prompts.get(prompt), how)
                for name, cell in red.items()
                for prompt, how in cell.prompts.items()
            ]
            told = [one == other for one, other in pairs if not {one, other} <= _TELL_NOTHING]
            if told:
                yield Likeness(fix, sum(told), len(told))
