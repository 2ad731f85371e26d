"""Owns the error tree: each error knows its exit code and reads `value: rule; what to do`."""

from graphcheck.schema.exit_codes import ExitCode


class GraphcheckError(Exception):
    """An error that reaches the user as one line.

    Args:
        value: what was found, with its place (`default.toml:12: axes.tp = 3`).
        rule: the rule that it breaks.
        todo: what the user can do next.
    """

    exit_code: ExitCode = ExitCode.INTERNAL

    def __init__(self, value: str, rule: str, todo: str) -> None:
        super().__init__(_one_line(f"{value}: {rule}; {todo}"))
        self.value, self.rule, self.todo = value, rule, todo


def _one_line(text: str) -> str:
    """Control characters as escapes: what a user typed or a file holds must not break the line, nor the terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class UsageError(GraphcheckError):
    """A wrong option, name or combination on the command line."""

    exit_code = ExitCode.USAGE


class FileError(UsageError):
    """A matrix, suite, model or run folder that cannot be used."""


class MatrixError(FileError):
    """A matrix file that breaks its rules."""


class SuiteError(FileError):
    """A suite file that breaks its rules, or does not fit the model."""


class ModelError(FileError):
    """A checkpoint folder that cannot be used."""


class RunFolderError(FileError):
    """A run folder that cannot be read or written."""


class ProvenanceError(UsageError):
    """A source tree that is not what was asked for, or a run whose ranks and cells did not run the same code."""


class TargetError(GraphcheckError):
    """A target that cannot start at all (before any attempt has a verdict of its own)."""

    exit_code = ExitCode.CRASH


class DeviceError(GraphcheckError):
    """No device of a kind that cells need: why, and what to do about it."""

    exit_code = ExitCode.INCOMPLETE


class GoldenError(GraphcheckError):
    """A golden that cannot be trusted."""

    exit_code = ExitCode.GOLDEN


class GoldenMissing(GoldenError):
    """No golden for this model, suite and dtype in any golden folder."""


class GoldenStale(GoldenError):
    """A golden whose model or suite has changed since it was made; names the differing keys."""


class GoldenCorrupt(GoldenError):
    """A golden that is cut off, edited, or in a format this version does not read."""


class GoldenDisputed(GoldenError):
    """A golden that was not made, because independent computations do not agree on its tokens."""
