"""Owns turning Ctrl-C and a request to terminate into an exception that unwinds, so that nothing is left running."""

import signal
from types import FrameType

from graphcheck.schema.exit_codes import ExitCode

_EXIT_CODES = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED}


class Interrupted(BaseException):
    """A signal asked the process to end. Not an Exception, so that nothing on the way takes it for a failure."""

    def __init__(self, exit_code: ExitCode) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


def raise_on_signals() -> None:
    """Makes SIGINT and SIGTERM raise Interrupted in the main thread, from which this must be called."""
    for number in _EXIT_CODES:
        signal.signal(number, _raise)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Interrupted(_EXIT_CODES[signal.Signals(number)])
