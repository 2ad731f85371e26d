"""Owns a run as a terminal follows it: a grid that is drawn again and again, and erased at the end."""

import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from graphcheck.harness.running.observe import Progress
from graphcheck.report.following import Following, Now, Row, ending
from graphcheck.report.terminal import style_of
from graphcheck.schema.run import AttemptFinished, AttemptStarted

_DRAW_SECONDS = 0.25
_LINES_AROUND = 7
"""Lines of a frame that are no rows: borders, header, outlook, the empty last line, and the shell's own above."""
_FEWEST_ROWS = 3


class Screen(Following):
    """Draws on `console` from `planned` on, until it is left as a context.

    It draws in the supervisor's thread between two looks: no thread of its own can be left in the middle of a frame.
    """

    def __init__(self, console: Console, now: Now = time.monotonic) -> None:
        super().__init__(now)
        self._console = console
        self._live = Live(console=console, get_renderable=self.frame, auto_refresh=False, transient=True)
        self._drawn = now()

    def __enter__(self) -> "Screen":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()

    def planned(self, keys: Sequence[str]) -> None:
        """See Observer.planned."""
        super().planned(keys)
        self._live.start()
        self._draw()

    def started(self, record: AttemptStarted) -> None:
        """See Observer.started."""
        super().started(record)
        self._draw()

    def progress(self, progress: Progress) -> None:
        """See Observer.progress."""
        super().progress(progress)
        if self.now() - self._drawn >= _DRAW_SECONDS:
            self._draw()

    def ended(self, row: Row, record: AttemptFinished) -> None:
        """See Following.ended."""
        self._draw()

    def frame(self) -> Group:
        """One frame, as high as the terminal at most; it ends in an empty line, which is where a killed run stops."""
        table = Table()
        table.add_column("cell", overflow="ellipsis")
        # As wide as what is to come, so that the grid does not jump.
        table.add_column("phase", no_wrap=True, min_width=len("decode, forced"))
        for name, widest in (("step", "999"), ("tokens/s", "9999"), ("time", "99.9 s")):
            table.add_column(name, no_wrap=True, min_width=len(widest), justify="right")
        for row in self._window():
            table.add_row(*self._cells(row))
        outlook = f"{self.outlook()}; Ctrl-C stops and reports, twice ends at once"
        return Group(table, Text(outlook, no_wrap=True, overflow="ellipsis"), Text())

    def _draw(self) -> None:
        self._drawn = self.now()
        self._live.refresh()

    def _window(self) -> list[Row]:
        """The rows around the one that runs, as many as there is room for."""
        rows = list(self.rows.values())
        room = max(_FEWEST_ROWS, self._console.height - _LINES_AROUND)
        first = max(0, min(self.num_done - room // 2, len(rows) - room))
        return rows[first : first + room]

    def _cells(self, row: Row) -> tuple[str | Text, ...]:
        now = self.now()
        took = f"{row.spent(now):.1f} s"
        if row.finished is not None:
            return row.key, Text(ending(row.finished), style=style_of(row.finished.verdict)), "", "", took
        if row.began is None:
            return row.key, Text("waits", style="dim")
        rate = row.tokens_per_second(now)
        step = str(row.progress.step) if row.progress is not None else ""
        return row.key, row.phase, step, f"{rate:.0f}" if rate else "", took
