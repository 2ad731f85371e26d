"""`--delay`: what is typed, and what is refused with the choices named."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from graphcheck.harness.files.model_folder import ModelFolder
from graphcheck.harness.files.suite_file import load_suite
from graphcheck.harness.planning.delays import parse_delays
from graphcheck.harness.planning.plan import PlannedAttempt
from graphcheck.schema.attempt import Attempt, Cell, Delay
from graphcheck.schema.capabilities import Capabilities
from graphcheck.schema.errors import UsageError

TARGET = Capabilities(target="t", axes=(), sites=("layers.{layer}.o_proj.reduce", "lm_head.gather"))
MODEL = ModelFolder(Path("toy"), "toy", {"num_hidden_layers": 4}, {})
SUITE = load_suite("twelve", Path("m.toml"))
PLANNED = [PlannedAttempt(Attempt(cell=Cell(axes={"tp": tp})), MODEL, SUITE, {"tp": tp}) for tp in (1, 2)]


def parse(texts: Sequence[str], capabilities: Capabilities = TARGET) -> tuple[Delay, ...]:
    """What is typed for cells of one and two ranks and a model of four layers."""
    return parse_delays(texts, capabilities, PLANNED)


def test_a_delay_is_read_in_any_order_of_its_parts() -> None:
    expected = Delay(rank=1, site="layers.3.o_proj.reduce", ms=20)
    assert parse(["rank=1,site=layers.3.o_proj.reduce,ms=20"]) == (expected,)
    assert parse(["ms=20.0,site=layers.3.o_proj.reduce,rank=1"]) == (expected,)


def test_several_delays_stay_in_order() -> None:
    both = parse(["rank=0,site=lm_head.gather,ms=1.5", "rank=1,site=lm_head.gather,ms=2"])
    assert [delay.name for delay in both] == ["rank0@lm_head.gather=1.5ms", "rank1@lm_head.gather=2ms"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it gives no rank"),
        ("rank=1,ms=20", "it gives no site"),
        ("rank=x,site=lm_head.gather,ms=20", "rank: the value should be a valid integer"),
        ("rnk=1,site=lm_head.gather,ms=20", "a delay has no part 'rnk'"),
        ("rank=-1,site=lm_head.gather,ms=20", "rank: .*greater than or equal to 0"),
        ("rank=0,site=lm_head.gather,ms=0", "ms: .*greater than 0"),
        ("rank=0,site=lm_head.gather,ms=1,why=x", "a delay has no part 'why'"),
        ("rank=0,site=layers.x.o_proj.reduce,ms=1", "no such site; sites: layers.{layer}.o_proj.reduce, lm_head"),
        ("rank=0,site=layersx3.o_proj.reduce,ms=1", "no such site"),
        ("rank=0,site=lm_head.gather.done,ms=1", "no such site"),
        ("rank=0,site=layers.03.o_proj.reduce,ms=1", "no such site"),
        ("rank=0,site=lm_head.gather,ms=inf", "ms: .*finite"),
        ("rank=0,rank=1,site=lm_head.gather,ms=1", "a part is given twice"),
        ("rank=2,site=lm_head.gather,ms=1", "no cell has a rank 2; ranks: 0 to 1"),
        ("rank=0,site=layers.4.o_proj.reduce,ms=1", "no model has a layer 4; layers: 0 to 3"),
    ],
)
def test_a_wrong_delay_is_one_line_that_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"^--delay {text}: .*{message}"):
        parse([text])


def test_a_place_that_is_delayed_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="delayed at this site already"):
        parse(["rank=0,site=lm_head.gather,ms=1", "rank=0,site=lm_head.gather,ms=2"])


def test_a_target_without_sites_takes_no_delay() -> None:
    with pytest.raises(UsageError, match="sites: none"):
        parse(["rank=0,site=lm_head.gather,ms=1"], Capabilities(target="t", axes=()))


def test_a_delayed_attempt_has_a_key_of_its_own() -> None:
    (delay,) = parse(["rank=0,site=lm_head.gather,ms=1.5"])
    keys = {
        Attempt(cell=Cell(axes={"tp": 2}), delays=delays, repeat=1).key for delays in ((), (delay,), (delay, delay))
    }
    assert keys == {
        "tp2.r1",
        "tp2.delay-rank0@lm_head.gather=1.5ms.r1",
        "tp2.delay-rank0@lm_head.gather=1.5ms.delay-rank0@lm_head.gather=1.5ms.r1",
    }
