"""Owns what changed from one golden to another, prompt by prompt, and how grave that is. Reads and writes no file."""

from dataclasses import dataclass
from enum import StrEnum

from graphcheck.schema.golden import Golden, GoldenHeader, GoldenPrompt


class ChangeKind(StrEnum):
    """How a prompt changed, least grave first; a whole golden counts as its gravest prompt."""

    SAME = "same"
    MARGINS = "margins only"
    OTHER = "other prompts"
    SOFT = "flip at a soft step"
    HARD = "HARD"


_GRAVITY = tuple(ChangeKind)


@dataclass(frozen=True)
class PromptChange:
    """One prompt of either golden. `step` is the first at which tokens, or else logits, differ."""

    prompt: str
    kind: ChangeKind
    step: int | None = None
    old: GoldenPrompt | None = None
    new: GoldenPrompt | None = None


@dataclass(frozen=True)
class Review:
    """Everything that changed from `old` to `new`.

    `old` is None where there was no golden, and where it cannot be read; `unreadable` then says why. `header` names the
    facts that differ (`versions.torch 2.11.0 -> 2.13.0`).
    """

    new: Golden
    old: Golden | None = None
    unreadable: str | None = None
    changes: tuple[PromptChange, ...] = ()
    header: tuple[str, ...] = ()

    @property
    def kind(self) -> ChangeKind:
        """The gravest change; what cannot be read cannot be shown to be the same."""
        if self.unreadable is not None:
            return ChangeKind.HARD
        return max((change.kind for change in self.changes), key=_GRAVITY.index, default=ChangeKind.SAME)

    @property
    def moved(self) -> bool:
        """True if the tokens of a prompt changed."""
        return self.kind in (ChangeKind.SOFT, ChangeKind.HARD)

    @property
    def environment_changed(self) -> bool:
        """True if the reference ran with other packages on the same model and suite."""
        if self.old is None:
            return False
        old, new = self.old.header, self.new.header
        return old.versions != new.versions and (old.model, old.suite_sha) == (new.model, new.suite_sha)

    def of(self, kind: ChangeKind) -> list[PromptChange]:
        return [change for change in self.changes if change.kind is kind]


def review(old: Golden, new: Golden) -> Review:
    """Compares two goldens of the same name."""
    quorum = old.header.quorum or new.header.quorum
    noise = quorum.noise if quorum else 0.0
    before = {prompt.id: prompt for prompt in old.prompts}
    after = {prompt.id: prompt for prompt in new.prompts}
    changes = tuple(_change(name, before.get(name), after.get(name), noise) for name in after | before)
    return Review(new=new, old=old, changes=changes, header=header_changes(old.header, new.header))


def header_changes(old: GoldenHeader, new: GoldenHeader) -> tuple[str, ...]:
    """What two headers disagree on; hashes are named but not spelled out."""
    lines = [f"model.{part}" for part in old.model | new.model if old.model.get(part) != new.model.get(part)]
    lines += [key for key in ("suite_sha", "dtype", "reference") if getattr(old, key) != getattr(new, key)]
    lines += version_changes(old.versions, new.versions)
    if old.quorum != new.quorum:
        lines.append("quorum")
    return tuple(lines)


def version_changes(old: dict[str, str], new: dict[str, str]) -> list[str]:
    """`versions.torch 2.11.0 -> 2.13.0` for each package of `old` that is another one in `new`."""
    return [
        f"versions.{package} {version} -> {new.get(package, 'none')}"
        for package, version in old.items()
        if new.get(package) != version
    ]


def _change(name: str, old: GoldenPrompt | None, new: GoldenPrompt | None, noise: float) -> PromptChange:
    if old is None or new is None or old.prompt_ids != new.prompt_ids:
        return PromptChange(name, ChangeKind.OTHER, None, old, new)
    pairs = zip(old.ids, new.ids, strict=False)
    shorter = min(len(old.ids), len(new.ids))
    step = next((number for number, (before, after) in enumerate(pairs) if before != after), shorter)
    if step == shorter and len(old.ids) != len(new.ids):
        # One is the beginning of the other. Only a number of tokens may end an answer early.
        ended = old if len(old.ids) == shorter else new
        kind = ChangeKind.OTHER if ended.finish == "length" else ChangeKind.HARD
        return PromptChange(name, kind, step, old, new)
    if step < shorter:
        was = old.steps[step]
        kind = ChangeKind.SOFT if was.soft or was.margin <= noise else ChangeKind.HARD
        return PromptChange(name, kind, step, old, new)
    steps = enumerate(zip(old.steps, new.steps, strict=True))
    moved = next((number for number, (before, after) in steps if before != after), None)
    kind = ChangeKind.SAME if moved is None else ChangeKind.MARGINS
    return PromptChange(name, kind, moved, old, new)
