"""Owns the sentences on where the code of a run came from, and on what its ranks had loaded."""

from collections.abc import Iterator

from rich.console import Console

import graphcheck
from graphcheck.harness.records.run_folder import Run
from graphcheck.harness.running.same_code import RULE, SameCode
from graphcheck.report.terminal import print_line
from graphcheck.report.words import counted
from graphcheck.schema.errors import RunFolderError
from graphcheck.schema.provenance import Provenance, Tree

_DIGITS = 12
"""As many of a hash as a reader compares."""

_FILES = 5


def print_provenance(found: Provenance, console: Console) -> None:
    """One line a fact."""
    print_line(console, f"graphcheck {graphcheck.__version__}, source on disk {_sha(found.source_sha)}")
    for what, tree in (("source", found.source), ("here", found.here)):
        if tree is not None:
            print_line(console, f"{what}: {tree.folder}: {describe_tree(tree)}")
            for name in tree.changed[:_FILES]:
                print_line(console, f"  {name}")
            if len(tree.changed) > _FILES:
                print_line(console, f"  and {len(tree.changed) - _FILES} more")
    if found.base is not None:
        print_line(console, f"asked for: {_describe_base(found)}")


def provenance_facts(run: Run) -> Iterator[tuple[str, str]]:
    """What a report for others says of the code: names no folder."""
    found = run.info.provenance
    yield "source", describe_tree(found.source)
    if found.here is not None:
        yield "current folder", describe_tree(found.here)
    if found.base is not None:
        yield "asked for", _describe_base(found)
    names = [name for attempt in run.every if attempt.finished for name in attempt.finished.facts.loaded.values()]
    for name in dict.fromkeys(names):
        loaded = run.loaded(name)
        counts = f"{len(loaded.sources)} modules, {len(loaded.libraries)} native libraries"
        ranks = f"{names.count(name)} of {counted(len(names), 'rank')}"
        yield f"loaded {name[:_DIGITS]}", f"{ranks}: {counts}" + (f" ({loaded.note})" if loaded.note else "")


def provenance_notes(run: Run) -> Iterator[str]:
    """Where ranks or cells of a run did not run the same code, or nobody can tell; drawn from what each had loaded."""
    code = SameCode()
    unread: set[str] = set()
    for attempt in (*run.every, *run.forced.values()):
        facts = attempt.finished.facts if attempt.finished is not None else None
        for rank, name in facts.loaded.items() if facts is not None else ():
            who = f"rank {rank} of {attempt.started.key}"
            try:
                loaded = run.loaded(name)
            except RunFolderError as error:
                yield f"what {who} had loaded is unknown: {error}"
                continue
            code.see(who, loaded)
            unread |= {loaded.note} - {""}
    yield from (f"native libraries are not compared between ranks: {note}" for note in sorted(unread))
    if code.difference is not None:
        yield f"{code.difference}: {RULE}"


def describe_tree(tree: Tree) -> str:
    """Commit, and what differs from it."""
    if tree.commit is None:
        return tree.note
    files = counted(len(tree.changed), "uncommitted file")
    changed = f"{files}, {_sha(tree.changed_sha)}" if tree.changed else "nothing uncommitted"
    return f"commit {tree.commit[:_DIGITS]}, {changed}"


def _describe_base(found: Provenance) -> str:
    base = found.base
    assert base is not None
    rev = f"{base.rev} ({base.commit[:_DIGITS]})" if base.rev is not None else base.commit[:_DIGITS]
    within = f", all within {' '.join(base.allow)}" if base.allow else ""
    return f"descends from {rev}; {counted(len(base.changed), 'file')} changed since{within}"


def _sha(digest: str | None) -> str:
    return f"sha256 {(digest or 'unknown')[:_DIGITS]}"
