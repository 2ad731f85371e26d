"""Owns a run as a terminal follows it: a grid that is drawn again and again, and erased at the end."""

import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console, Group, OverflowMethod
from rich.live import Live
from rich.table import Table
from rich.text import Text

from graphcheck.harness.running.observe import Progress
from graphcheck.report.following import Following, Row, ending
from graphcheck.report.heartbeat import Now
from graphcheck.report.terminal import style_of
from graphcheck.schema.run import AttemptFinished, AttemptStarted

DRAW_SECONDS = 0.25
_LINES_BELOW = 3
"""The outlook, the empty last line, and the shell's own above the table."""
_LINES_AROUND = 4 + _LINES_BELOW
"""Lines that are no rows: the table's borders and header too."""
_FEWEST_ROWS = 3


class Screen(Following):
    """Draws on `console` from `planned` on, until it is left as a context.

    It draws in the supervisor's thread between two looks: no thread of its own can be left in the middle of a frame.
    """

    def __init__(self, console: Console, now: Now = time.monotonic, on_ctrl_c: str = "stops and reports") -> None:
        super().__init__(now)
        self._console, self._on_ctrl_c = console, on_ctrl_c
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
        if self.now() - self._drawn >= DRAW_SECONDS:
            self._draw()

    def ended(self, row: Row, record: AttemptFinished) -> None:
        """See Following.ended."""
        self._draw()

    def frame(self) -> Group:
        """One frame, as high as the terminal at most; it ends in an empty line, which is where a killed run stops."""
        outlook = f"{self.outlook()}; Ctrl-C {self._on_ctrl_c}, twice ends at once"
        return Group(self._fitting_table(), Text(outlook, no_wrap=True, overflow="ellipsis"), Text())

    def _fitting_table(self) -> Table:
        """As many rows as there is room for. On a narrow terminal keys are folded; cut, where one alone is too high."""
        room = self._console.height - _LINES_BELOW
        most = min(max(_FEWEST_ROWS, self._console.height - _LINES_AROUND), len(self.rows))
        num_rows = most
        while num_rows > 0:
            table = self._table(num_rows, "fold")
            num_lines = len(self._console.render_lines(table, pad=False))
            if num_lines <= room:
                return table
            num_rows = min(num_rows - 1, num_rows * room // num_lines)
        return self._table(most, "ellipsis")

    def _table(self, num_rows: int, overflow: OverflowMethod) -> Table:
        table = Table()
        table.add_column("cell", overflow=overflow)
        # As wide as what is to come, so that the grid does not jump.
        table.add_column("phase", no_wrap=True, min_width=len("decode, forced"))
        for name, widest in (("step", "999"), ("tokens/s", "9999"), ("time", "99.9 s")):
            table.add_column(name, no_wrap=True, min_width=len(widest), justify="right")
        for row in self._window(num_rows):
            table.add_row(*self._cells(row))
        return table

    def _draw(self) -> None:
        self._drawn = self.now()
        self._live.refresh()

    def _window(self, num_rows: int) -> list[Row]:
        """The rows around the one that runs."""
        rows = list(self.rows.values())
        first = max(0, min(self.num_done - num_rows // 2, len(rows) - num_rows))
        return rows[first : first + num_rows]

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
