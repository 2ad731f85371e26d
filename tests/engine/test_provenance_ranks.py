"""What real ranks say that they have loaded: the engine's sources and torch's libraries, in every rank alike."""

import hashlib
from pathlib import Path

import pytest

import graphcheck
from graphcheck.harness.running.limits import Limits
from graphcheck.harness.running.same_code import SameCode
from graphcheck.harness.running.supervise import supervise
from graphcheck.schema.attempt import Attempt, Cell
from graphcheck.schema.base import AxisValue
from graphcheck.schema.events import Event, LoadedEvent, StepEvent
from graphcheck.schema.suite import Request, Workload
from graphcheck.targets.base import Launch
from graphcheck.targets.bundled.target import BundledTarget

PACKAGE = Path(graphcheck.__file__).parent


@pytest.fixture
def events(target: BundledTarget, tiny: Path, tmp_path: Path) -> list[Event]:
    """What two ranks report."""
    axes: dict[str, AxisValue] = {"tp": 2, "graph": "on"}
    defaults = {axis.name: axis.default for axis in target.describe().axes}
    launch = Launch(attempt=Attempt(cell=Cell(axes=axes)), model_dir=tiny, settings=defaults | axes)
    workload = Workload(suite="test", requests=(Request(id="r", prompt_ids=(1, 2, 3), max_new_tokens=2),))
    seen: list[Event] = []
    supervise(target.start(launch, workload, tmp_path), Limits.for_device("cpu"), seen.append)
    return seen


def test_every_rank_tells_what_it_has_loaded_before_its_first_step(events: list[Event]) -> None:
    for rank in (0, 1):
        own = [type(event) for event in events if event.rank == rank]
        assert LoadedEvent in own[: own.index(StepEvent)]
    told = [event for event in events if isinstance(event, LoadedEvent)]
    code = SameCode()
    for event in told:
        code.see(f"rank {event.rank}", event.loaded)
    code.check()
    loaded = told[0].loaded
    assert loaded.note == ""
    for module in ("engine.step", "engine.graphs.tape", "targets.bundled.rank", "targets.bundled.fork_server"):
        source = (PACKAGE / module.replace(".", "/")).with_suffix(".py")
        assert loaded.sources[f"graphcheck.{module}"] == hashlib.sha256(source.read_bytes()).hexdigest()
    torch = loaded.libraries["libtorch_cpu.so"]
    assert torch.build_id
    assert "libc10.so" in torch.needed
