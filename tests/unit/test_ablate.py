"""An ablation as it runs: which trials, in which order, when it stops, what it exits with, what can be read back."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from graphcheck.harness.judging.findings import find
from graphcheck.harness.judging.story import DIVERGED, MISMATCHED
from graphcheck.harness.planning.request import RunRequest, make_plan
from graphcheck.harness.records.rejudge import rejudged
from graphcheck.harness.running.interrupt import Interrupted
from graphcheck.report.ablation import render_ablation
from graphcheck.report.words import RED_BASELINE
from graphcheck.schema.ablation import Finding
from graphcheck.schema.attempt import Attempt
from graphcheck.schema.errors import UsageError
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.run import AttemptFinished
from graphcheck.schema.suite import Workload
from graphcheck.schema.verdicts import Outcome, Verdict
from graphcheck.targets.base import Launch
from graphcheck.targets.fake import FakeSession, FakeTarget
from graphcheck.targets.fake_fixes import FIXES
from tests.fake_ablation import Ablated, ablate_in, scripted, verdicts
from tests.fake_world import FakeWorld

HANG, TOKENS = Verdict.HANG, Verdict.TOKENS
DELAYS = ("rank=0,site=layers.1,ms=5",)


def rendered(ablated: Ablated) -> str:
    console = Console(file=io.StringIO(), width=200)
    assert render_ablation(ablated.run, console) is ablated.code
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def finished(ablated: Ablated, key: str) -> AttemptFinished:
    ended = next(attempt.finished for attempt in ablated.run.attempts if attempt.started.key == key)
    assert ended is not None
    return ended


def test_baseline_once_then_each_fix_where_it_can_act_then_everything_back_on(fake_world: FakeWorld) -> None:
    ablated = ablate_in(fake_world, fake_world.matrix(tp=[1, 2], graph=["off", "on"]))
    cells = ["tp1-graph_off", "tp1-graph_on", "tp2-graph_off", "tp2-graph_on"]
    assert ablated.keys == [
        *cells,
        "tp1-graph_on.no-refresh",
        "tp2-graph_on.no-refresh",
        "tp2-graph_off.no-sync",
        "tp2-graph_on.no-sync",
        *(f"{cell}.r1" for cell in cells),
    ]
    assert (ablated.num_planned, tuple(ablated.keys)) == (len(ablated.keys), ablated.run.info.planned)


def test_cells_where_a_fix_cannot_act_are_not_run_and_that_is_said(fake_world: FakeWorld) -> None:
    text = rendered(ablate_in(fake_world, fake_world.matrix(tp=[1, 2], graph=["off", "on"])))
    rows = {row.split("│")[1].strip(): row.split("│")[2:-2] for row in text.splitlines() if row.startswith("│")}
    assert [cell.strip() == "-" for cell in rows["refresh"]] == [True, False, True, False]
    assert [cell.strip() == "-" for cell in rows["sync"]] == [True, True, False, False]
    assert "-: the fix cannot act in this cell, so the cell was not run with it off" in text


def test_no_race_is_looked_for_where_a_fix_cannot_act(fake_world: FakeWorld) -> None:
    cannot = ablate_in(fake_world, fake_world.matrix(tp=[1], graph=["off"]), options={"fixes": ("sync",)})
    last = rendered(cannot).splitlines()[-1]
    assert last.startswith("exit 7: a fix is not proven; next: run cells in which the fix can act, ")
    may = ablate_in(fake_world, fake_world.matrix(graph=["on"]), scripted("none", HANG))
    assert "a race may show itself" in rendered(may).splitlines()[-1]


def test_only_the_named_fixes_are_switched_off(fake_world: FakeWorld) -> None:
    ablated = ablate_in(fake_world, fake_world.matrix(tp=[2], graph=["on"]), options={"fixes": ("sync",)})
    assert ablated.keys == ["tp2-graph_on", "tp2-graph_on.no-sync", "tp2-graph_on.r1"]
    assert list(ablated.findings) == ["sync"]


def test_repeats_repeat_the_trials_and_not_the_baseline(fake_world: FakeWorld) -> None:
    options = {"fixes": ("refresh",), "repeats": 3}
    ablated = ablate_in(fake_world, fake_world.matrix(graph=["on"]), options=options)
    trials = ["graph_on.no-refresh", "graph_on.no-refresh.r1", "graph_on.no-refresh.r2"]
    assert ablated.keys == ["graph_on", *trials, "graph_on.r1"]
    assert "TOKENS 3/3 from token 1, 3 of 3 prompts" in rendered(ablated)


def test_trials_run_bare_first_and_then_delayed_and_so_do_baseline_and_restored_run(fake_world: FakeWorld) -> None:
    options = {"fixes": ("refresh",), "repeats": 2, "delays": DELAYS}
    ablated = ablate_in(fake_world, fake_world.matrix(graph=["on"]), options=options)
    delay = "delay-rank0@layers.1=5ms"
    assert ablated.keys == [
        "graph_on",
        f"graph_on.{delay}",
        "graph_on.no-refresh",
        "graph_on.no-refresh.r1",
        f"graph_on.no-refresh.{delay}",
        f"graph_on.no-refresh.{delay}.r1",
        "graph_on.r1",
        f"graph_on.{delay}.r1",
    ]
    assert ablated.code is ExitCode.PASS


class Failing(FakeTarget):
    """Goes wrong in the attempts that `strikes` picks, whatever is switched off."""

    def __init__(self, world: FakeWorld, fault: str, strikes: object) -> None:
        super().__init__(world.clock.sleep)
        self._planted, self._strikes = fault, strikes

    def start(self, launch: Launch, workload: Workload, out_dir: Path) -> FakeSession:
        if self._strikes(launch.attempt):
            launch = launch.model_copy(update={"settings": launch.settings | {"fault": self._planted}})
        return super().start(launch, workload, out_dir)


def is_delayed(attempt: Attempt) -> bool:
    return bool(attempt.delays)


@pytest.mark.parametrize(("fault", "code"), [("drift", 1), ("hang", 3), ("signal", 4), ("no_replay", 5)])
def test_a_red_baseline_stops_at_once_with_its_own_code(fault: str, code: int, fake_world: FakeWorld) -> None:
    ablated = ablate_in(fake_world, fake_world.matrix(tp=[1, 2], graph=["on"], fault=["none", fault]))
    assert ablated.keys == ["tp1-graph_on-fault_none", f"tp1-graph_on-fault_{fault}"]
    assert ablated.code == code
    text = rendered(ablated)
    assert RED_BASELINE in text
    assert f"tp1-graph_on-fault_{fault}  " in text
    assert "baseline: 1/4 cells" in text
    assert "NECESSARY" not in text
    assert text.splitlines()[-1].startswith(f"exit {code}: ")


def test_a_baseline_without_a_golden_stops_too(fake_world: FakeWorld) -> None:
    fake_world.golden_file.unlink()
    ablated = ablate_in(fake_world, fake_world.matrix(graph=["off", "on"]))
    assert (ablated.keys, ablated.code) == (["graph_off"], ExitCode.GOLDEN)


def test_a_delay_that_alone_turns_a_cell_red_is_a_red_baseline(fake_world: FakeWorld) -> None:
    target = Failing(fake_world, "drift", is_delayed)
    options = {"delays": DELAYS}
    ablated = ablate_in(fake_world, fake_world.matrix(graph=["on"]), target=target, options=options)
    assert (len(ablated.keys), ablated.code) == (2, ExitCode.TOKENS)
    assert "graph_on.delay-rank0@layers.1=5ms  TOKENS: 1 of 3 prompts differ" in rendered(ablated)


def test_a_fix_is_not_proven_if_putting_it_back_does_not_help(fake_world: FakeWorld) -> None:
    target = Failing(fake_world, "drift", lambda attempt: attempt.repeat == 1 and not attempt.fixes_off)
    matrix = fake_world.matrix(tp=[1, 2], graph=["on"])
    ablated = ablate_in(fake_world, matrix, target=target, options={"fixes": ("refresh",)})
    assert ablated.code is ExitCode.UNPROVEN
    assert ablated.finding.finding is Finding.NOT_REPRODUCED
    assert ablated.finding.reason == (
        "without it TOKENS in decode in 2 of 2 cells; but with every fix back on, not all was green again: "
        "tp1-graph_on.r1 TOKENS, tp2-graph_on.r1 TOKENS"
    )


def test_a_fix_is_not_proven_if_the_restored_run_was_skipped(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(tp=[1], graph=["on"])
    ablated = ablate_in(fake_world, matrix, options={"fixes": ("refresh",)}, allow_skipped=True)
    assert ablated.finding.finding is Finding.NECESSARY
    attempts = [
        replace(a, finished=a.finished.model_copy(update={"verdict": Verdict.SKIPPED}))
        if a.finished is not None and a.started.attempt.repeat == 1
        else a
        for a in ablated.run.attempts
    ]
    finding = find(ablated.run.info, attempts)[0]
    assert (finding.finding, "tp1-graph_on.r1 SKIPPED" in finding.reason) == (Finding.NOT_REPRODUCED, True)


def test_skipped_cells_leave_the_ablation_incomplete_unless_allowed(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(tp=[1, 2], graph=["on"], settings={"device": "cuda"})
    options = {"fixes": ("refresh",)}
    ablated = ablate_in(fake_world, matrix, num_devices=1, options=options)
    assert ablated.finding.reason == "without it TOKENS in decode in 1 of 2 cells, 1 skipped"
    assert (ablated.finding.finding, ablated.code) == (Finding.NECESSARY, ExitCode.INCOMPLETE)
    text = rendered(ablated)
    assert "SKIPPED: needs 2 cuda devices, found 1" in text
    assert RED_BASELINE not in text
    allowed = ablate_in(fake_world, matrix, num_devices=1, options=options, allow_skipped=True)
    assert allowed.code is ExitCode.PASS


def test_a_baseline_without_the_required_backend_is_vacuous_however_the_fixes_fare(fake_world: FakeWorld) -> None:
    for graph, code in (("off", ExitCode.VACUOUS), ("on", ExitCode.PASS)):
        matrix = fake_world.matrix(tp=[2], graph=[graph])
        ablated = ablate_in(fake_world, matrix, options={"fixes": ("sync",)}, require_backend="fake")
        assert (ablated.finding.finding, ablated.code) == (Finding.NECESSARY, code)
        assert ("--require-backend fake: no green cell" in rendered(ablated)) == (code is ExitCode.VACUOUS)


def test_a_fix_whose_cells_were_all_skipped_is_not_proven(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(tp=[1, 2], graph=["on"], settings={"device": "cuda"})
    ablated = ablate_in(fake_world, matrix, num_devices=1, options={"fixes": ("sync",)}, allow_skipped=True)
    reason = "every cell where it acts was skipped: needs 2 cuda devices, found 1"
    assert (ablated.finding.finding, ablated.finding.reason) == (Finding.CANNOT_ACT, reason)
    assert ablated.code is ExitCode.UNPROVEN


def test_an_interrupt_keeps_its_code_and_proves_nothing(fake_world: FakeWorld) -> None:
    def interrupt(attempt: Attempt) -> str:
        raise Interrupted(ExitCode.INTERRUPTED)

    first = scripted("drift", TOKENS, name="first")
    second = scripted(interrupt, TOKENS, name="second")
    ablated = ablate_in(fake_world, fake_world.matrix(graph=["on"]), first, second)
    assert ablated.code is ExitCode.INTERRUPTED
    assert [finding.finding for finding in ablated.findings.values()] == [Finding.NOT_REPRODUCED] * 2
    text = rendered(ablated)
    assert RED_BASELINE not in text
    assert text.splitlines()[-1].startswith("exit 130: ")


def test_every_verdict_of_an_ablation_can_be_drawn_again(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(tp=[1, 2], graph=["off", "on"])
    fixes = (*FIXES, scripted("part", HANG, where={"tp": (2,)}), scripted("derail", TOKENS, name="derailing"))
    ablated = ablate_in(fake_world, matrix, *fixes, gives_forced=True)
    assert ablated.run.forced
    assert all(rejudged(ablated.run, attempt) == attempt.finished for attempt in ablated.run.every)


def test_a_forced_pass_refines_the_outcome_and_is_no_trial_of_its_own(fake_world: FakeWorld) -> None:
    matrix, fix = fake_world.matrix(graph=["on"]), scripted("derail", TOKENS)
    key = "graph_on.no-scripted"

    def first_prompt(ablated: Ablated) -> tuple[Outcome, str]:
        prompt = finished(ablated, key).prompts[0]
        return prompt.outcome, prompt.detail

    free = ablate_in(fake_world, matrix, fix)
    assert first_prompt(free) == (Outcome.CORRUPT, "10 of 12 tokens wrong on rank 0")
    forced = ablate_in(fake_world, matrix, fix, gives_forced=True)
    assert first_prompt(forced) == (Outcome.DRIFT, "1 of 12 forced steps wrong on rank 0")
    assert forced.keys == free.keys
    assert list(forced.run.forced) == [key]
    assert [record.key for record in forced.records].count(f"{key}.forced") == 2


def test_corrupt_is_corrupt_by_forced_steps(fake_world: FakeWorld) -> None:
    ablated = ablate_in(fake_world, fake_world.matrix(graph=["on"]), options={"fixes": ("refresh",)}, gives_forced=True)
    prompt = finished(ablated, "graph_on.no-refresh").prompts[0]
    assert (prompt.outcome, prompt.detail) == (Outcome.CORRUPT, "11 of 12 forced steps wrong on rank 0")


@pytest.mark.parametrize(("fault", "cause"), [("hang", MISMATCHED), ("part", DIVERGED)])
def test_a_forced_pass_never_changes_a_hang_but_tells_its_cause(fault: str, cause: str, fake_world: FakeWorld) -> None:
    fix = scripted(fault, HANG, where={"tp": (2,)})
    ablated = ablate_in(fake_world, fake_world.matrix(tp=[2], graph=["on"]), fix, gives_forced=True)
    hung = finished(ablated, "tp2-graph_on.no-scripted")
    assert (hung.verdict, ablated.finding.finding) == (HANG, Finding.NECESSARY)
    assert hung.story is not None
    assert hung.story.cause == cause
    assert f"forced pass: {cause}" in rendered(ablated)


def test_the_hang_is_told_from_the_first_disagreement_to_the_last_collective(fake_world: FakeWorld) -> None:
    fix = scripted("part", HANG, where={"tp": (2,)})
    text = rendered(ablate_in(fake_world, fake_world.matrix(tp=[2], graph=["on"]), fix, gives_forced=True))
    told = [
        "ranks first disagreed at engine step 4, prompt 'one', token 1: rank 0 picked 58, rank 1 picked 59",
        "their batches parted at engine step 5: rank 0 ran decode of 3 in bucket 4, rank 1 ran decode of 2 in bucket 2",
        "forced pass: fed the golden's tokens",
        "does not match: ",
        "rank 0: decode, step 5, collective 10, in wait_for_peers for 2.",
        "last tags #9 reduce",
        "stack wait_for_peers",
    ]
    assert [text.index(line) for line in told] == sorted(text.index(line) for line in told)


@pytest.mark.parametrize("fault", ["hang_capture", "hang_teardown", "signal", "no_replay"])
def test_what_a_forced_pass_cannot_explain_gets_none(fault: str, fake_world: FakeWorld) -> None:
    fix = scripted(fault, HANG, phase="any")
    ablated = ablate_in(fake_world, fake_world.matrix(tp=[2], graph=["on"]), fix, gives_forced=True)
    assert ablated.run.forced == {}
    hung = finished(ablated, "tp2-graph_on.no-scripted")
    assert hung.verdict is not Verdict.PASS
    assert hung.story is None or hung.story.cause == ""


def test_the_table_prints_which_verdicts_came_and_how_often(fake_world: FakeWorld) -> None:
    fix = scripted(lambda attempt: ("hang", "drift", "none", "hang")[attempt.repeat], HANG, TOKENS)
    ablated = ablate_in(fake_world, fake_world.matrix(tp=[2], graph=["on"]), fix, options={"repeats": 4})
    assert "HANG 2/4 TOKENS 1/4 PASS 1/4 in decode, step 5" in rendered(ablated)
    keys = ["tp2-graph_on.no-scripted", *(f"tp2-graph_on.no-scripted.r{n}" for n in (1, 2, 3))]
    assert verdicts(ablated.run, keys) == [HANG, TOKENS, Verdict.PASS, HANG]


def test_what_the_audit_found_with_a_fix_off_is_told_with_its_finding(fake_world: FakeWorld) -> None:
    ablated = ablate_in(
        fake_world, fake_world.matrix(tp=[1, 2], graph=["on"]), scripted("breach", Verdict.ERROR, phase="any")
    )
    assert ablated.finding.finding is Finding.NECESSARY
    lines = rendered(ablated).splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("scripted  NECESSARY"))
    assert lines[place + 1] == "  audit: contents of positions; first: lane 0 holds 3, not 4"
    assert "audit" not in rendered(
        ablate_in(fake_world, fake_world.matrix(graph=["on"]), options={"fixes": ("refresh",)})
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fixes": ("refresh", "nothing")}, r"--fix nothing: target fake has no such fix; choose one of refresh, sync"),
        ({"expect": ("PASS",)}, r"--expect PASS: not in the signature of any selected fix; choose one of HANG, TOKENS"),
        ({"expect": ("hang",)}, r"--expect hang: not in the signature"),
        ({"expect": ("SKIPPED",)}, r"--expect SKIPPED: not in the signature"),
        ({"expect": ("HANG",), "fixes": ("refresh",)}, r"--expect HANG: not in the signature .* choose one of TOKENS"),
        ({"delays": ("rank=0,site=attic,ms=1",)}, r"target 'fake' has no such site; sites: layers\.\{layer\}"),
    ],
)
def test_what_was_asked_wrongly_is_refused_before_anything_starts(
    options: dict[str, object], message: str, fake_world: FakeWorld
) -> None:
    with pytest.raises(UsageError, match=message):
        ablate_in(fake_world, fake_world.matrix(graph=["on"]), options=options)
    assert not Path("runs").exists()


def test_so_many_delays_that_no_file_could_bear_their_names_are_refused_before_anything_starts(
    fake_world: FakeWorld,
) -> None:
    delays = tuple(f"rank={rank},site=layers.{layer},ms=1.23456" for rank in range(4) for layer in (0, 1))
    matrix = fake_world.matrix(tp=[4], graph=["on"])
    rule = "--delay, given 8 times: names of files would have 273 bytes, 255 at most; give fewer"
    with pytest.raises(UsageError, match=rule):
        ablate_in(fake_world, matrix, options={"delays": delays})
    assert not Path("runs").exists()
    assert ablate_in(fake_world, matrix, options={"delays": delays[:6]}).code is ExitCode.PASS


def test_a_cell_whose_files_would_have_too_long_names_is_refused_before_anything_starts(fake_world: FakeWorld) -> None:
    longest = 255 - len("buckets_.r1.forced.jsonl")
    for num_bytes, repeats, fits in ((longest, 2, True), (longest, 11, False), (longest + 1, 2, False)):
        matrix = fake_world.matrix(buckets=["1".zfill(num_bytes)])
        request = RunRequest(matrix=str(matrix), repeats=repeats)
        if fits:
            make_plan(request, lambda name: FakeTarget())
            continue
        with pytest.raises(UsageError, match="names of files would have 256 bytes, 255 at most; give its axes shorter"):
            make_plan(request, lambda name: FakeTarget())


def test_a_target_without_fixes_cannot_be_ablated(fake_world: FakeWorld) -> None:
    with pytest.raises(UsageError, match="no fixes to switch off"):
        ablate_in(fake_world, fake_world.matrix(graph=["on"]), target=FakeTarget(fixes=()))
