"""Owns a target without an engine: it counts out the right answers by a rule, and goes wrong exactly as it is told."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from graphcheck.schema.base import AxisValue
from graphcheck.schema.capabilities import AxisSpec, Capabilities
from graphcheck.schema.errors import TargetError, UsageError
from graphcheck.schema.events import Event
from graphcheck.schema.journal import Journal
from graphcheck.schema.suite import Workload
from graphcheck.targets.base import Launch
from graphcheck.targets.fake_faults import FAULTS
from graphcheck.targets.fake_fixes import FIXES, FakeFix
from graphcheck.targets.fake_rank import STRIKES, FakeRank

_AXES = (
    AxisSpec(name="tp", kind="int", default=1, choices=(1, 2, 4), help="ranks"),
    AxisSpec(name="graph", kind="str", default="off", choices=("off", "on"), help="claim to replay graphs in decode"),
    AxisSpec(name="device", kind="str", default="cpu", choices=("cpu", "cuda"), help="device that a rank would need"),
    AxisSpec(name="lanes", kind="int", default=8, minimum=1, help="sequences decoded at once"),
    AxisSpec(name="buckets", kind="str", default="1,2,4,8", help="padded decode batch sizes, ascending"),
    AxisSpec(name="fault", kind="str", default="none", choices=tuple(FAULTS), help="what goes wrong"),
    AxisSpec(name="logits", kind="str", default="off", choices=("off", "digest", "top"), help="what steps tell"),
    AxisSpec(name="strikes", kind="str", default="decode", choices=STRIKES, help="phase of a fault without its own"),
)


class FakeTarget:
    """Runs in the caller's process, without processes, threads or torch; `sleep` is how it lets time pass.

    With `gives_forced` it can be fed the golden's tokens, as an engine that takes part in a forced pass must.
    """

    def __init__(
        self,
        sleep: Callable[[float], None] = time.sleep,
        fixes: Sequence[FakeFix] = FIXES,
        *,
        gives_forced: bool = False,
    ) -> None:
        self._sleep, self._fixes, self._gives_forced = sleep, fixes, gives_forced

    def describe(self) -> Capabilities:
        """See Target.describe."""
        return Capabilities(
            target="fake",
            axes=_AXES,
            fixes=tuple(fix.info for fix in self._fixes),
            graph_backends=("fake",),
            fallbacks=("kv_dtype",),
            gives_top_logits=True,
            gives_forced=self._gives_forced,
            devices={"cuda": "tp"},
            sites=("layers.{layer}",),
        )

    def check(self, settings: Mapping[str, AxisValue]) -> None:
        """See Target.check."""
        buckets = str(settings["buckets"])
        if not all(part.isdecimal() and int(part) for part in buckets.split(",")):
            raise UsageError(f"buckets = {buckets!r}", "positive numbers joined by commas", "write it like 1,2,4,8")

    def start(self, launch: Launch, workload: Workload, out_dir: Path) -> "FakeSession":
        """See Target.start. The rule needs `vocab_size` from the model's config.json."""
        fault = self._fault(launch)
        if fault == "no_start":
            raise TargetError("fault no_start", "the fake target was told not to start", "choose another fault")
        config = json.loads((launch.model_dir / "config.json").read_bytes())
        sites = {fix.info.name: dict(fix.visits) for fix in self._fixes}
        ranks = [
            FakeRank(rank, launch.settings, fault, workload, int(config["vocab_size"]), sites)
            for rank in range(int(launch.settings["tp"]))
        ]
        for rank in range(len(ranks)):
            (out_dir / f"rank{rank}.log").write_text(f"fault {fault}\n", encoding="utf-8")
        return FakeSession(ranks, self._sleep, has_journals=fault != "unwitnessed")

    def close(self) -> None:
        """See Target.close."""

    def _fault(self, launch: Launch) -> str:
        """What the fix that is off brings about in this cell, else the cell's own fault."""
        for fix in self._fixes:
            if fix.info.name in launch.attempt.fixes_off and fix.info.signature.acts_in(launch.settings):
                return fix.fault(launch.attempt)
        fault = str(launch.settings["fault"])
        if fault == "flaky":
            return "drift" if launch.attempt.repeat % 2 else "none"
        return fault


class FakeSession:
    """See targets.base.Session. Each call of `events` lets every rank go one step on."""

    def __init__(self, ranks: Sequence[FakeRank], sleep: Callable[[float], None], *, has_journals: bool) -> None:
        self.num_ranks = len(ranks)
        self.killed = False
        self._ranks, self._sleep, self._has_journals = ranks, sleep, has_journals
        self._num_dumps = 0

    def events(self, timeout: float) -> Sequence[Event]:
        """See Session.events."""
        events = [event for rank in self._ranks for event in rank.advance()]
        if not events:
            self._sleep(timeout)
            for rank in self._ranks:
                rank.pass_time(timeout)
        return events

    def journals(self) -> Sequence[Journal]:
        """See Session.journals."""
        return [rank.journal() for rank in self._ranks] if self._has_journals else []

    def release(self) -> None:
        """See Session.release."""
        for rank in self._ranks:
            rank.released = True

    def dump(self) -> Mapping[int, str]:
        """See Session.dump. Line numbers move from dump to dump on a rank that is at work."""
        self._num_dumps += 1
        return {number: rank.stack(self._num_dumps) for number, rank in enumerate(self._ranks) if rank.alive}

    def kill(self) -> None:
        """See Session.kill."""
        self.killed = True
