"""Owns the words of judging: the outcome of a prompt, the verdict of an attempt, and what each means for CI."""

from enum import StrEnum

from graphcheck.schema.exit_codes import ExitCode


class Outcome(StrEnum):
    """What became of one prompt, gravest first: of the ranks and passes that differ, the gravest names it.

    What the calibrated bound explains as a near tie counts as none of the others.
    """

    ERROR = "error"
    MISSING = "missing"
    COLLAPSE = "collapse"
    LOOP = "loop"
    CORRUPT = "corrupt"
    DRIFT = "drift"
    LENGTH = "length"
    NEAR_TIE = "near_tie"
    EXACT = "exact"


class Verdict(StrEnum):
    """What became of one attempt, in the order in which they are tried: the first that applies wins.

    An ERROR that no prompt shows, ranks that disagree or a breach found by the audit, is tried after TOKENS.
    """

    SKIPPED = "SKIPPED"
    MISSING = "MISSING"
    STALE = "STALE"
    HANG = "HANG"
    TIMEOUT = "TIMEOUT"
    CRASH = "CRASH"
    OOM = "OOM"
    ERROR = "ERROR"
    LEAK = "LEAK"
    TOKENS = "TOKENS"
    FLAKY = "FLAKY"
    VACUOUS = "VACUOUS"
    UNWITNESSED = "UNWITNESSED"
    PASS = "PASS"

    @property
    def exit_code(self) -> ExitCode:
        return _EXIT_CODES[self]

    @property
    def is_green(self) -> bool:
        """UNWITNESSED is green in the exit code but is always shown apart from PASS."""
        return self.exit_code is ExitCode.PASS


_EXIT_CODES: dict[Verdict, ExitCode] = {
    Verdict.SKIPPED: ExitCode.INCOMPLETE,
    Verdict.MISSING: ExitCode.GOLDEN,
    Verdict.STALE: ExitCode.GOLDEN,
    Verdict.HANG: ExitCode.HANG,
    Verdict.TIMEOUT: ExitCode.HANG,
    Verdict.CRASH: ExitCode.CRASH,
    Verdict.OOM: ExitCode.CRASH,
    Verdict.ERROR: ExitCode.CRASH,
    Verdict.LEAK: ExitCode.CRASH,
    Verdict.TOKENS: ExitCode.TOKENS,
    Verdict.FLAKY: ExitCode.TOKENS,
    Verdict.VACUOUS: ExitCode.VACUOUS,
    Verdict.UNWITNESSED: ExitCode.PASS,
    Verdict.PASS: ExitCode.PASS,
}
