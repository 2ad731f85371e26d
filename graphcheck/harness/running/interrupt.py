"""Owns turning Ctrl-C and a request to terminate into an exception that unwinds, so that nothing is left running."""

import os
import signal
from types import FrameType

from graphcheck.schema.exit_codes import ExitCode

_EXIT_CODES = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED}
FLUSH_SECONDS = 4.5
"""What a terminated run has to say is said within this time; whoever sent the signal kills after 5 s or so."""


class Interrupted(BaseException):
    """A signal asked the process to end. Not an Exception, so that nothing on the way takes it for a failure."""

    def __init__(self, exit_code: ExitCode) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


def raise_on_signals() -> None:
    """Makes SIGINT and SIGTERM raise Interrupted in the main thread, from which this must be called.

    One raises, whatever follows it: what unwinds must not be torn apart. A second Ctrl-C ends the process on the spot,
    and its ranks with it, which watch their supervisor; so does the time that SIGTERM leaves. A second SIGTERM does
    nothing: timeout(1) sends two.
    """
    seen: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        code = _EXIT_CODES[signal.Signals(number)]
        if number == signal.SIGINT and seen:
            os._exit(code)
        if number == signal.SIGTERM and number not in seen:
            signal.signal(signal.SIGALRM, lambda *_: os._exit(code))
            signal.setitimer(signal.ITIMER_REAL, FLUSH_SECONDS)
        seen.append(number)
        if len(seen) == 1:
            raise Interrupted(code)

    for number in _EXIT_CODES:
        signal.signal(number, on_signal)
