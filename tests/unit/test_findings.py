"""The finding on a fix: each kind planted, with what it rests on in the reason."""

from dataclasses import replace

import pytest

from graphcheck.harness.judging.findings import find
from graphcheck.schema.ablation import Finding
from graphcheck.schema.attempt import Attempt
from graphcheck.schema.errors import UsageError
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.run import PromptResult
from graphcheck.schema.verdicts import Verdict
from tests.fake_ablation import Ablated, ablate_in, scripted
from tests.fake_world import FakeWorld

HANG, TOKENS, CRASH = Verdict.HANG, Verdict.TOKENS, Verdict.CRASH


def in_repeats(fault: str, *repeats: int) -> object:
    """A fault that strikes in these repeats alone, as a race would."""
    return lambda attempt: fault if attempt.repeat in repeats else "none"


def outcome(ablated: Ablated) -> tuple[Finding, str, ExitCode]:
    return ablated.finding.finding, ablated.finding.reason, ablated.code


def test_a_fix_whose_declared_signature_comes_is_necessary(fake_world: FakeWorld) -> None:
    ablated = ablate_in(fake_world, fake_world.matrix(tp=[1, 2], graph=["off", "on"]))
    found = {fix: (finding.finding, finding.reason) for fix, finding in ablated.findings.items()}
    assert found == {
        "refresh": (Finding.NECESSARY, "without it TOKENS in decode in 2 of 2 cells"),
        "sync": (Finding.NECESSARY, "without it HANG in decode in 2 of 2 cells"),
    }
    assert ablated.code is ExitCode.PASS


def test_another_verdict_than_the_declared_one_is_another_signature(fake_world: FakeWorld) -> None:
    ablated = ablate_in(fake_world, fake_world.matrix(tp=[1, 2], graph=["on"]), scripted("drift", HANG))
    assert outcome(ablated) == (
        Finding.OTHER_SIGNATURE,
        "expected HANG in decode, and came TOKENS in decode x 2",
        ExitCode.UNPROVEN,
    )


def test_the_declared_verdict_in_another_phase_is_another_signature(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(tp=[2], graph=["on"])
    for fault, verdict, came in [
        ("drift", TOKENS, "TOKENS in decode"),
        ("hang", HANG, "HANG in decode"),
        ("raise", CRASH, "CRASH in decode"),
    ]:
        assert ablate_in(fake_world, matrix, scripted(fault, verdict)).finding.finding is Finding.NECESSARY
        assert ablate_in(fake_world, matrix, scripted(fault, verdict, phase="any")).code is ExitCode.PASS
        other = ablate_in(fake_world, matrix, scripted(fault, verdict, phase="prefill"))
        expected = (Finding.OTHER_SIGNATURE, f"expected {verdict} in prefill, and came {came} x 1", ExitCode.UNPROVEN)
        assert outcome(other) == expected
    capture = ablate_in(fake_world, matrix, scripted("hang_capture", HANG))
    assert outcome(capture)[1] == "expected HANG in decode, and came HANG in capture x 1"


@pytest.mark.parametrize(
    ("differences", "came"),
    [
        ({"one": (0, 2), "two": (1, 5)}, "TOKENS in prefill x 1"),
        ({"one": (0, 9), "two": (1, 5)}, "TOKENS in decode x 1"),
        ({"one": (0, None), "two": (1, 5)}, "TOKENS in decode x 1"),
        ({"one": (0, None)}, "TOKENS in prefill x 1"),
    ],
)
def test_the_phase_of_wrong_tokens_is_that_of_the_first_engine_step(
    differences: dict[str, tuple[int, int | None]], came: str, fake_world: FakeWorld
) -> None:
    ablated = ablate_in(fake_world, fake_world.matrix(graph=["on"]), scripted("drift", HANG))

    def planted(prompt: PromptResult) -> PromptResult:
        step, engine_step = differences.get(prompt.prompt, (None, None))
        return prompt.model_copy(update={"step": step, "engine_step": engine_step})

    attempts = [
        replace(a, finished=a.finished.model_copy(update={"prompts": tuple(map(planted, a.finished.prompts))}))
        for a in ablated.run.attempts
        if a.finished is not None
    ]
    assert find(ablated.run.info, attempts)[0].reason == f"expected HANG in decode, and came {came}"


def test_a_death_whose_phase_nobody_saw_counts_for_its_verdict(fake_world: FakeWorld) -> None:
    ablated = ablate_in(fake_world, fake_world.matrix(tp=[1], graph=["on"]), scripted("signal", CRASH))
    assert ablated.finding.finding is Finding.NECESSARY


def test_in_some_cells_the_declared_and_in_some_another_is_another_signature(fake_world: FakeWorld) -> None:
    fix = scripted(lambda attempt: "hang" if attempt.cell.axes["tp"] == 1 else "drift", HANG)
    ablated = ablate_in(fake_world, fake_world.matrix(tp=[1, 2, 4], graph=["on"]), fix)
    assert outcome(ablated)[:2] == (
        Finding.OTHER_SIGNATURE,
        "expected HANG in decode, and came HANG in decode x 1, TOKENS in decode x 2",
    )


def test_a_site_that_is_never_reached_is_told_with_its_counts(fake_world: FakeWorld) -> None:
    fix = scripted("none", TOKENS, visits={"eager": 412, "replay": 0})
    ablated = ablate_in(fake_world, fake_world.matrix(graph=["on"]), fix)
    assert outcome(ablated) == (Finding.NEVER_REACHED, "reached: eager 412, replay 0", ExitCode.UNPROVEN)
    assert ablated.finding.effects[0].where == "never reached; reached: eager 412, replay 0"
    assert ablated.finding.effects[0].reached == {"eager": 412, "replay": 0}


def test_an_eager_visit_counts_for_a_fix_that_acts_without_graphs(fake_world: FakeWorld) -> None:
    fix = scripted("none", TOKENS, where={"tp": (1,)}, visits={"eager": 412, "replay": 0})
    ablated = ablate_in(fake_world, fake_world.matrix(tp=[1], graph=["on"]), fix)
    assert ablated.finding.finding is Finding.REDUNDANT


def test_a_fix_that_is_reached_and_changes_nothing_is_redundant(fake_world: FakeWorld) -> None:
    ablated = ablate_in(fake_world, fake_world.matrix(tp=[1, 2], graph=["on"]), scripted("none", TOKENS))
    reason = "reached, and without it all stayed green in 2 of 2 cells"
    assert outcome(ablated) == (Finding.REDUNDANT, reason, ExitCode.UNPROVEN)
    assert ablated.finding.effects[1].where == "no effect; reached: eager 0, replay 22"


@pytest.mark.parametrize(
    ("fault", "finding", "reason"),
    [
        ("drift", Finding.NECESSARY, "without it TOKENS in decode in 1 of 2 cells, 1 skipped"),
        ("none", Finding.REDUNDANT, "reached, and without it all stayed green in 1 of 2 cells, 1 skipped"),
    ],
)
def test_a_finding_does_not_hide_the_cells_that_were_skipped(
    fault: str, finding: Finding, reason: str, fake_world: FakeWorld
) -> None:
    matrix = fake_world.matrix(tp=[1, 2], graph=["on"], settings={"device": "cuda"})
    ablated = ablate_in(fake_world, matrix, scripted(fault, TOKENS), num_devices=1, allow_skipped=True)
    assert outcome(ablated)[:2] == (finding, reason)


def test_no_effect_is_not_redundant_where_nobody_can_tell_whether_the_site_was_reached(fake_world: FakeWorld) -> None:
    ablated = ablate_in(fake_world, fake_world.matrix(graph=["on"]), scripted("unwitnessed", TOKENS))
    reason = "no effect, and no rank told whether its site was reached"
    assert outcome(ablated) == (Finding.NOT_REPRODUCED, reason, ExitCode.UNPROVEN)


def test_a_race_that_does_not_show_is_not_reproduced_and_says_how_often_it_may_be(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(tp=[1, 2], graph=["on"])
    ablated = ablate_in(fake_world, matrix, scripted("none", HANG, TOKENS), options={"repeats": 10})
    assert outcome(ablated) == (
        Finding.NOT_REPRODUCED,
        "no effect; bare 0/10 (95 % interval 0-31 %) in each cell; "
        "a race that shows in up to 31% of trials would look like that",
        ExitCode.UNPROVEN,
    )


def test_a_race_is_proven_once_it_shows_in_every_cell_with_exact_intervals(fake_world: FakeWorld) -> None:
    fix = scripted(in_repeats("hang", 1, 2, 3, 5, 6, 8, 9), HANG, TOKENS)
    ablated = ablate_in(fake_world, fake_world.matrix(tp=[2], graph=["on"]), fix, options={"repeats": 10})
    assert outcome(ablated) == (
        Finding.NECESSARY,
        "without it HANG in decode in 1 of 1 cells; bare 7/10 (95 % interval 35-93 %) in tp2-graph_on",
        ExitCode.PASS,
    )


def test_a_race_that_shows_in_some_cells_alone_is_not_reproduced(fake_world: FakeWorld) -> None:
    fix = scripted(lambda attempt: "hang" if attempt.cell.axes["tp"] == 2 else "none", HANG, TOKENS)
    ablated = ablate_in(fake_world, fake_world.matrix(tp=[1, 2, 4], graph=["on"]), fix, options={"repeats": 3})
    assert outcome(ablated)[:2] == (
        Finding.NOT_REPRODUCED,
        "HANG or TOKENS in decode did not come every time; bare 0/3 (95 % interval 0-71 %) "
        "in tp1-graph_on, tp4-graph_on; "
        "bare 3/3 (95 % interval 29-100 %) in tp2-graph_on",
    )


def test_a_single_declared_verdict_must_come_every_time(fake_world: FakeWorld) -> None:
    fix = scripted(in_repeats("drift", 0, 1, 2), TOKENS)
    ablated = ablate_in(fake_world, fake_world.matrix(graph=["on"]), fix, options={"repeats": 4})
    reason = "TOKENS in decode did not come every time; bare 3/4 (95 % interval 19-99 %) in graph_on"
    assert outcome(ablated) == (Finding.NOT_REPRODUCED, reason, ExitCode.UNPROVEN)
    assert ablated.finding.effects[0].verdicts == (TOKENS, TOKENS, TOKENS, Verdict.PASS)


def test_a_search_for_a_hang_never_settles_for_a_drift(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(tp=[2], graph=["on"])
    drifts = scripted("drift", HANG, TOKENS)
    assert ablate_in(fake_world, matrix, drifts).finding.finding is Finding.NECESSARY
    narrowed = ablate_in(fake_world, matrix, drifts, options={"expect": ("HANG",), "repeats": 2})
    assert outcome(narrowed) == (
        Finding.OTHER_SIGNATURE,
        "expected HANG in decode, and came TOKENS in decode x 2",
        ExitCode.UNPROVEN,
    )
    rarely = scripted(lambda attempt: "hang" if attempt.repeat == 4 else "drift", HANG, TOKENS)
    found = ablate_in(fake_world, matrix, rarely, options={"expect": ("HANG",), "repeats": 5})
    assert outcome(found)[1] == (
        "without it HANG in decode in 1 of 1 cells; "
        "bare 1/5 (95 % interval 1-72 %) in tp2-graph_on; "
        "besides came TOKENS in decode x 4"
    )


def test_a_search_for_a_hang_leaves_out_fixes_that_never_hang_and_can_be_green(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(graph=["on"])
    fixes = scripted("drift", TOKENS), scripted("hang", HANG, name="other")
    ablated = ablate_in(fake_world, matrix, *fixes, options={"expect": ("HANG",)})
    assert {name: found.finding for name, found in ablated.findings.items()} == {"other": Finding.NECESSARY}
    assert ablated.code is ExitCode.PASS
    with pytest.raises(
        UsageError, match=r"--expect HANG: the signature of fix scripted is TOKENS; leave out --fix scr"
    ):
        ablate_in(fake_world, matrix, *fixes, options={"expect": ("HANG",), "fixes": ("scripted", "other")})


def test_a_signature_of_another_backend_does_not_count(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(graph=["on"])
    ablated = ablate_in(fake_world, matrix, scripted("drift", TOKENS, backend="cuda"))
    reason = "expected nothing (it declares no signature for this backend), and came TOKENS in decode x 1"
    assert outcome(ablated)[:2] == (Finding.OTHER_SIGNATURE, reason)


def test_without_any_graph_the_signature_is_that_of_the_devices_own_backend(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(tp=[2], graph=["off"])
    on_cpu = scripted("hang", HANG, where={"tp": (2,)}, backend="tape")
    assert ablate_in(fake_world, matrix, on_cpu).finding.finding is Finding.NECESSARY
    on_cuda = scripted("hang", HANG, where={"tp": (2,)}, backend="cuda")
    assert ablate_in(fake_world, matrix, on_cuda).finding.finding is Finding.OTHER_SIGNATURE
    cuda = fake_world.matrix(tp=[2], graph=["off"], settings={"device": "cuda"})
    assert ablate_in(fake_world, cuda, on_cuda, num_devices=2).finding.finding is Finding.NECESSARY


def test_a_fix_that_can_act_in_no_selected_cell_is_said_to_be_so(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(tp=[1, 2], graph=["off", "on"])
    ablated = ablate_in(fake_world, matrix, options={"fixes": ("refresh",)}, select="graph=off")
    reason = "it acts only where graph is on: in none of 2 selected cells"
    assert outcome(ablated) == (Finding.CANNOT_ACT, reason, ExitCode.UNPROVEN)
    assert ablated.keys == ["tp1-graph_off", "tp2-graph_off"], "nothing was switched off, nothing put back"


def test_an_effect_is_no_proof_until_it_was_seen_to_go_away_again(fake_world: FakeWorld) -> None:
    ablated = ablate_in(fake_world, fake_world.matrix(graph=["on"]), scripted("drift", TOKENS))
    cut = find(ablated.run.info, ablated.run.attempts[:-1])[0]
    assert (cut.finding, cut.reason) == (
        Finding.NOT_REPRODUCED,
        "without it TOKENS in decode in 1 of 1 cells; but the run ended before every trial had",
    )
    none = find(ablated.run.info, ablated.run.attempts[:1])[0]
    assert (none.finding, none.reason) == (Finding.NOT_REPRODUCED, "the run ended before its first trial")


def test_a_run_of_a_matrix_has_no_findings(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["on"]))
    with pytest.raises(ValueError, match="not an ablation"):
        find(run.info, run.attempts)


def late(attempt: Attempt) -> str:
    return "hang" if attempt.delays else "none"


DELAY = ("rank=1,site=layers.0,ms=20",)


@pytest.mark.parametrize(
    ("fault", "finding", "reason"),
    [
        (
            late,
            Finding.NECESSARY,
            "without it HANG in decode in 1 of 1 cells; bare 0/1 in tp2-graph_on; "
            "with rank1@layers.0=20ms 1/1 in tp2-graph_on; it does not show bare",
        ),
        (
            "hang",
            Finding.NECESSARY,
            "without it HANG in decode in 1 of 1 cells; bare 1/1 in tp2-graph_on; "
            "with rank1@layers.0=20ms 1/1 in tp2-graph_on; it shows bare too",
        ),
        (
            lambda attempt: "none" if attempt.delays else "hang",
            Finding.NECESSARY,
            "without it HANG in decode in 1 of 1 cells; bare 1/1 in tp2-graph_on; "
            "with rank1@layers.0=20ms 0/1 in tp2-graph_on; it shows bare too",
        ),
    ],
)
def test_what_was_injected_is_said_and_whether_it_shows_bare(
    fault: object, finding: Finding, reason: str, fake_world: FakeWorld
) -> None:
    matrix = fake_world.matrix(tp=[2], graph=["on"])
    ablated = ablate_in(fake_world, matrix, scripted(fault, HANG), options={"delays": DELAY})
    assert outcome(ablated) == (finding, reason, ExitCode.PASS)


def test_a_race_with_a_delay_that_still_does_not_show_gives_both_rates(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(tp=[2], graph=["on"])
    options = {"delays": DELAY, "repeats": 2}
    ablated = ablate_in(fake_world, matrix, scripted("none", HANG, TOKENS), options=options)
    assert outcome(ablated)[:2] == (
        Finding.NOT_REPRODUCED,
        "no effect; bare 0/2 (95 % interval 0-84 %) in tp2-graph_on; "
        "with rank1@layers.0=20ms 0/2 (95 % interval 0-84 %) in tp2-graph_on; "
        "a race that shows in up to 84% of trials would look like that",
    )


def test_a_delay_on_a_rank_that_none_of_the_fixs_cells_has_was_not_injected(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(tp=[1, 2], graph=["on"])
    hangs = scripted("hang", HANG, where={"tp": (1,)})
    ablated = ablate_in(fake_world, matrix, hangs, options={"delays": DELAY})
    assert outcome(ablated)[1] == (
        "without it HANG in decode in 1 of 1 cells; bare 2/2 (95 % interval 16-100 %) in tp1-graph_on; "
        "none of its cells has a rank for these delays"
    )


def test_findings_are_drawn_from_the_record_alone(fake_world: FakeWorld) -> None:
    ablated = ablate_in(fake_world, fake_world.matrix(graph=["on"]), scripted("drift", TOKENS))
    edited = [
        replace(attempt, finished=attempt.finished.model_copy(update={"verdict": Verdict.PASS}))
        for attempt in ablated.run.attempts
        if attempt.finished is not None
    ]
    assert find(ablated.run.info, edited)[0].finding is Finding.REDUNDANT
