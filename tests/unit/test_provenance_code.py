"""What ranks had loaded: one code in all ranks and cells, or exit 2 and one line that names part, rank and cell."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from graphcheck.harness.planning.request import RunRequest
from graphcheck.harness.records.run_folder import load_run
from graphcheck.harness.running.run_matrix import run_matrix
from graphcheck.report.markdown import markdown
from graphcheck.report.show import show
from graphcheck.schema.errors import ProvenanceError
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.provenance import Library, Loaded
from graphcheck.schema.verdicts import Verdict
from tests.fake_loading import GOOD, LIBRARIES, SOURCES, LoadingTarget, Loads
from tests.fake_world import FakeWorld


def run(world: FakeWorld, loads: Loads, **axes: Sequence[object]) -> ExitCode:
    """Runs TP 1 and 2 into the folder `out`."""
    matrix = world.matrix(**({"tp": [1, 2]} | axes))
    surroundings = replace(world.surroundings(), load_target=lambda name: LoadingTarget(world, loads))
    return run_matrix(RunRequest(matrix=str(matrix), run_dir=Path("out")), surroundings=surroundings).exit_code


def instead(**changed: str | Library) -> Loaded:
    """What a good rank has loaded, but for these."""
    sources = {name.replace("_", "."): sha for name, sha in changed.items() if isinstance(sha, str)}
    libraries = {f"lib{name}": library for name, library in changed.items() if isinstance(library, Library)}
    return Loaded(sources=SOURCES | sources, libraries=LIBRARIES | libraries)


def test_the_same_code_everywhere_is_recorded_once(fake_world: FakeWorld) -> None:
    assert run(fake_world, lambda cell, rank: GOOD, fault=["none", "drift"]) is ExitCode.TOKENS
    recorded = load_run(Path("out"))
    names = {name for attempt in recorded.every for name in attempt.finished.facts.loaded.values()}  # type: ignore[union-attr]
    assert len(names) == 1
    assert recorded.loaded(names.pop()) == GOOD
    assert len(list(Path("out/loaded").iterdir())) == 1
    assert all(attempt.finished and attempt.finished.facts.loaded for attempt in recorded.forced.values())
    assert "6 of 6 ranks: 2 modules, 3 native libraries" in markdown(recorded)


def test_what_only_some_ranks_load_and_what_nobody_can_name_is_no_difference(fake_world: FakeWorld) -> None:
    def loads(cell: str, rank: int) -> Loaded:
        if cell == "tp1":
            return Loaded(sources=SOURCES, note="build-ids unknown", libraries={"libnccl.so.2": Library()})
        return GOOD if rank == 0 else instead(kernels_delay="e" * 64, cuda=Library(build_id="f" * 40))

    assert run(fake_world, loads) is ExitCode.PASS


PLANTED = {
    "source in a rank": (
        "tp2",
        1,
        instead(engine_step="9" * 64),
        "rank 1 of tp2: module engine.step has sha256 999999999999, but sha256 aaaaaaaaaaaa in rank 0 of tp1",
    ),
    "source in a cell": (
        "tp1",
        0,
        instead(engine_rope="9" * 64),
        "rank 0 of tp2: module engine.rope has sha256 bbbbbbbbbbbb, but sha256 999999999999 in rank 0 of tp1",
    ),
    "library in a rank": (
        "tp2",
        1,
        Loaded(sources=SOURCES, libraries=LIBRARIES | {"libnccl.so.2": Library(build_id="9" * 40)}),
        "rank 1 of tp2: library libnccl.so.2 has build-id 999999999999, but build-id dddddddddddd in rank 0 of tp1",
    ),
    "one more library of the same name": (
        "tp2",
        0,
        Loaded(libraries={"libnccl.so.2": Library(build_id=f"{'d' * 40}+{'9' * 40}")}),
        "rank 0 of tp2: library libnccl.so.2 has build-id dddddddddddd+999999999999, but build-id dddddddddddd in",
    ),
    "a library with an id in place of one without": (
        "tp2",
        0,
        Loaded(libraries={"libwithout.so": Library(build_id="9" * 40)}),
        "rank 0 of tp2: library libwithout.so has build-id 999999999999, but build-id none in rank 0 of tp1",
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_another_source_or_library_in_a_rank_or_a_cell_ends_the_run(
    planted: str, fake_world: FakeWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    where, bad_rank, bad, expected = PLANTED[planted]

    def loads(cell: str, rank: int) -> Loaded:
        return bad if (cell, rank) == (where, bad_rank) else GOOD

    with pytest.raises(ProvenanceError) as raised:
        run(fake_world, loads)
    assert str(raised.value).startswith(expected)
    assert "all ranks and cells of a run must run the same code; keep source, packages and" in str(raised.value)
    recorded = load_run(Path("out"))
    assert recorded.info.exit_code == ExitCode.USAGE
    assert [attempt.finished and attempt.finished.verdict for attempt in recorded.attempts] == [Verdict.PASS] * 2
    assert show(Path("out"), Console(width=300)) is ExitCode.USAGE
    assert expected in capsys.readouterr().out, "drawn again from the folder"


def test_a_rank_with_another_library_is_named_even_if_that_hung_the_run(fake_world: FakeWorld) -> None:
    def loads(cell: str, rank: int) -> Loaded:
        return PLANTED["library in a rank"][2] if rank else GOOD

    with pytest.raises(ProvenanceError, match=r"^rank 1 of tp2-fault_hang: library libnccl"):
        run(fake_world, loads, fault=["hang"], tp=[2])
    (attempt,) = load_run(Path("out")).attempts
    assert attempt.finished is not None
    assert attempt.finished.verdict is Verdict.HANG


def test_libraries_that_nobody_could_read_are_noted_once(
    fake_world: FakeWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    unread = Loaded(libraries={"libnccl.so.2": Library()}, note="build-ids unknown: no elftools")
    assert run(fake_world, lambda cell, rank: unread) is ExitCode.PASS
    show(Path("out"), Console(width=300))
    shown = capsys.readouterr().out
    assert shown.count("native libraries are not compared between ranks: build-ids unknown: no elftools") == 1


def test_a_record_of_what_was_loaded_that_is_gone_is_noted(
    fake_world: FakeWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    run(fake_world, lambda cell, rank: GOOD, tp=[1])
    (record,) = Path("out/loaded").iterdir()
    record.write_text("{", encoding="utf-8")
    assert show(Path("out"), Console(width=300)) is ExitCode.PASS
    assert f"what rank 0 of tp1 had loaded is unknown: {record}: cannot be read" in capsys.readouterr().out
