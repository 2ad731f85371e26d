"""Owns whether all ranks and cells of a run had the same code loaded."""

from collections.abc import Iterator

from graphcheck.schema.errors import ProvenanceError
from graphcheck.schema.provenance import Loaded

RULE = "all ranks and cells of a run must run the same code"


class SameCode:
    """What has been loaded so far, and by whom first; compares what two ranks have both loaded and could both name."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], tuple[str, str]] = {}
        self.difference: str | None = None
        """The first one seen: who had loaded which part in another form than somebody before."""

    def see(self, who: str, loaded: Loaded) -> None:
        """`who` (`rank 1 of tp2-graph_on`) has loaded this."""
        for kind, name, form in _parts(loaded):
            first, whose = self._first.setdefault((kind, name), (form, who))
            if form != first and self.difference is None:
                self.difference = f"{who}: {kind} {name} has {_shown(form)}, but {_shown(first)} in {whose}"

    def check(self) -> None:
        """Does nothing as long as all code was the same.

        Raises:
            ProvenanceError: it was not, so that cells can no longer be compared.
        """
        if self.difference is not None:
            todo = "keep source, packages and LD_LIBRARY_PATH the same from the first rank to the last, then run again"
            raise ProvenanceError(self.difference, RULE, todo)


def _parts(loaded: Loaded) -> Iterator[tuple[str, str, str]]:
    """Kind, name and form of each part that could be read."""
    for module, sha in loaded.sources.items():
        yield "module", module, f"sha256 {sha}"
    for name, library in loaded.libraries.items():
        if library.build_id is not None:
            yield "library", name, f"build-id {library.build_id or 'none'}"


def _shown(form: str) -> str:
    """As many digits as a reader compares."""
    kind, _, digits = form.partition(" ")
    return f"{kind} {'+'.join(part[:12] for part in digits.split('+'))}"
