"""Owns ablations on the fake target, in virtual time: fixes by script, and what came of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphcheck.harness.judging.findings import find
from graphcheck.harness.planning.request import RunRequest
from graphcheck.harness.records.run_folder import Run, load_run
from graphcheck.harness.running.ablate import AblateRequest, ablate
from graphcheck.harness.running.execute import Surroundings
from graphcheck.harness.running.observe import Observer
from graphcheck.harness.running.supervise import Clock
from graphcheck.schema.ablation import FixFinding
from graphcheck.schema.attempt import Attempt
from graphcheck.schema.base import AxisValue
from graphcheck.schema.capabilities import FixInfo, Signature
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.run import AttemptFinished, AttemptStarted
from graphcheck.schema.verdicts import Verdict
from graphcheck.targets.base import Target
from graphcheck.targets.fake import FakeTarget
from graphcheck.targets.fake_fixes import FIXES, FakeFix
from tests.fake_world import FakeWorld

GRAPH_ON: Mapping[str, tuple[AxisValue, ...]] = {"graph": ("on",)}
REACHED = {"eager": 0, "replay": 11}


@dataclass
class Ablated:
    """An ablation that has ended."""

    run: Run
    code: ExitCode
    num_planned: int = 0
    records: list[AttemptStarted | AttemptFinished] = field(default_factory=list)

    @property
    def findings(self) -> dict[str, FixFinding]:
        return {finding.fix: finding for finding in find(self.run.info, self.run.attempts)}

    @property
    def finding(self) -> FixFinding:
        """That on the only fix."""
        (only,) = self.findings.values()
        return only

    @property
    def keys(self) -> list[str]:
        """What ran, in order, forced passes left out."""
        return [attempt.started.key for attempt in self.run.attempts]


class Remembering(Observer):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.num_planned = 0
        self.records: list[AttemptStarted | AttemptFinished] = []

    def planned(self, keys: Sequence[str]) -> None:
        self.num_planned = len(keys)

    def started(self, record: AttemptStarted) -> None:
        self.records.append(record)

    def finished(self, record: AttemptFinished) -> None:
        self.records.append(record)


def scripted(
    fault: str | Callable[[Attempt], str],
    *shows: Verdict,
    name: str = "scripted",
    where: Mapping[str, tuple[AxisValue, ...]] = GRAPH_ON,
    phase: str = "decode",
    backend: str = "fake",
    visits: Mapping[str, int] = REACHED,
) -> FakeFix:
    """A fix that declares `shows` and whose absence brings about `fault`."""
    signature = Signature.model_validate({"where": where, "phase": phase, "shows": {backend: shows}})
    info = FixInfo(name=name, clause="", promise="", off_means="", signature=signature)
    return FakeFix(info, fault if callable(fault) else lambda attempt: fault, visits)


def ablate_in(
    world: FakeWorld,
    matrix: Path,
    *fixes: FakeFix,
    target: Target | None = None,
    num_devices: int = 0,
    options: Mapping[str, Any] | None = None,
    gives_forced: bool = False,
    **request: Any,
) -> Ablated:
    """Ablates the scripted `fixes` (those of the fake target if there are none).

    `options` are fields of AblateRequest, `request` of RunRequest; another `target` replaces the fake one.
    """
    fake = FakeTarget(world.clock.sleep, fixes or FIXES, gives_forced=gives_forced)
    surroundings = Surroundings(
        load_target=lambda name: target or fake,
        count_devices=lambda kind: num_devices,
        clock=Clock(world.clock.now, world.clock.sleep),
        device_memory=lambda: None,
    )
    heard = Remembering()
    asked = AblateRequest(RunRequest(matrix=str(matrix), **request), **(options or {}))
    result = ablate(asked, heard, surroundings)
    return Ablated(load_run(result.path), result.exit_code, heard.num_planned, heard.records)


def verdicts(run: Run, keys: Sequence[str]) -> list[Verdict]:
    """The verdicts of these attempts."""
    ended = {attempt.started.key: attempt.finished for attempt in run.attempts}
    return [finished.verdict for key in keys if (finished := ended[key]) is not None]
