"""Owns calling the program inside the test's own process, for tables of many calls. Starts nothing."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

import graphcheck.__main__ as entry

Call = Callable[..., "Ended"]


@dataclass(frozen=True)
class Ended:
    """A call that has ended: its exit code, and what it printed."""

    code: int
    out: str
    err: str

    def assert_one_line(self, code: int, message: str) -> None:
        """One line on standard error that tells value, rule and what to do, and begins with `message`."""
        assert (self.code, self.out) == (code, ""), self
        assert self.err.startswith(f"graphcheck: {message}"), self.err
        assert self.err.count("\n") == 1, "one line, and no traceback"
        value, colon, rest = self.err.partition(": ")[2].partition(": ")
        assert all([value, colon, *rest.partition("; ")]), f"value: rule; what to do, in {self.err!r}"


def make_call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """`call("run", "matrix", ...)` runs `graphcheck run matrix ...`, without taking over the process's signals."""
    monkeypatch.setattr(entry, "raise_on_signals", lambda: None)

    def call(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["graphcheck", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            entry.main()
        out, err = capsys.readouterr()
        return Ended(int(ended.value.code or 0), out, err)

    return call
