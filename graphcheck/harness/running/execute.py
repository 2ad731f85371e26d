"""Owns running prepared attempts one after the other: which are skipped, which cannot start, which run."""

from collections.abc import Callable
from dataclasses import dataclass, field

from graphcheck.harness.machine.devices import DeviceCheck, count_devices
from graphcheck.harness.machine.nvidia import memory_in_use
from graphcheck.harness.planning.prepare import Ready, Unready
from graphcheck.harness.planning.request import Plan
from graphcheck.harness.records.run_store import RunStore, timestamp
from graphcheck.harness.running.device_memory import DeviceMemory, ReadMemory
from graphcheck.harness.running.observe import Observer
from graphcheck.harness.running.run_attempt import Attempter, started_record
from graphcheck.harness.running.same_code import SameCode
from graphcheck.harness.running.supervise import SYSTEM_CLOCK, Clock
from graphcheck.schema.run import AttemptFacts, AttemptFinished, AttemptStarted
from graphcheck.schema.verdicts import Verdict
from graphcheck.targets.base import Target
from graphcheck.targets.registry import load_target


@dataclass(frozen=True)
class Surroundings:
    """What a run takes from the world around it."""

    load_target: Callable[[str], Target] = load_target
    count_devices: Callable[[str], int] = count_devices
    clock: Clock = field(default=SYSTEM_CLOCK)
    device_memory: ReadMemory = memory_in_use


class Execution:
    """An open run. Every record is on disk before the next thing happens; `observer` then hears of it."""

    def __init__(self, plan: Plan, store: RunStore, observer: Observer, surroundings: Surroundings) -> None:
        self._store, self._observer = store, observer
        self._devices = DeviceCheck(plan.capabilities, surroundings.count_devices)
        self._memory = DeviceMemory(plan.capabilities, surroundings.device_memory, surroundings.clock)
        self._code = SameCode()
        clock = surroundings.clock
        self._attempter = Attempter(plan, store, clock, self._record, self._memory, observer, self._code)

    def run(self, one: Ready | Unready) -> AttemptFinished:
        """Runs one attempt; whatever goes wrong in it is its verdict.

        Raises:
            ProvenanceError: its ranks ran other code than ranks before; its verdict is on record.
        """
        planned = one.planned
        lack = self._devices.lack(planned.settings, planned.asked) or self._memory.held(planned.settings)
        if lack is None and isinstance(one, Ready):
            ran = self._attempter.run(one)
            self._code.check()
            return ran
        self._record(started_record(one))
        if lack is not None:
            verdict, reason, facts = Verdict.SKIPPED, lack, AttemptFacts()
        else:
            assert isinstance(one, Unready)
            verdict, reason, facts = one.verdict, one.reason, AttemptFacts()
        key = planned.attempt.key
        finished = AttemptFinished(key=key, verdict=verdict, reason=reason, facts=facts, at=timestamp())
        self._record(finished)
        return finished

    def _record(self, entry: AttemptStarted | AttemptFinished) -> None:
        self._store.append(entry)
        if isinstance(entry, AttemptStarted):
            self._observer.started(entry)
        else:
            self._observer.finished(entry)
