"""Every fault, planted in a whole run: which outcome, which verdict, which exit code it must come out as."""

import pytest

from graphcheck.harness.records.run_folder import Run
from graphcheck.schema.exit_codes import MEANING, ExitCode, worst
from graphcheck.schema.run import AttemptFinished
from graphcheck.schema.verdicts import Outcome, Verdict
from graphcheck.targets.fake_faults import FAULTS
from tests.fake_world import FakeWorld, write_golden_of

# fault -> graph, verdict, outcome of the first prompt, exit code
EXPECTED = {
    "none": ("on", Verdict.PASS, Outcome.EXACT, 0),
    "drift": ("on", Verdict.TOKENS, Outcome.DRIFT, 1),
    "one_rank": ("on", Verdict.TOKENS, Outcome.DRIFT, 1),
    "derail": ("on", Verdict.TOKENS, Outcome.CORRUPT, 1),
    "part": ("on", Verdict.HANG, Outcome.CORRUPT, 3),
    "corrupt": ("on", Verdict.TOKENS, Outcome.CORRUPT, 1),
    "replays_off_by_one": ("on", Verdict.TOKENS, Outcome.CORRUPT, 1),
    "flaky": ("on", Verdict.PASS, Outcome.EXACT, 0),
    "loop": ("on", Verdict.TOKENS, Outcome.LOOP, 1),
    "repeat": ("on", Verdict.TOKENS, Outcome.COLLAPSE, 1),
    "not_finite": ("on", Verdict.TOKENS, Outcome.COLLAPSE, 1),
    "short": ("on", Verdict.TOKENS, Outcome.LENGTH, 1),
    "long": ("on", Verdict.TOKENS, Outcome.LENGTH, 1),
    "wrong_end": ("on", Verdict.TOKENS, Outcome.LENGTH, 1),
    "split": ("on", Verdict.PASS, Outcome.EXACT, 0),
    "missing": ("on", Verdict.ERROR, Outcome.MISSING, 4),
    "request_error": ("on", Verdict.ERROR, Outcome.ERROR, 4),
    "oom": ("on", Verdict.OOM, Outcome.LENGTH, 4),
    "no_start": ("on", Verdict.CRASH, Outcome.MISSING, 4),
    "hang": ("on", Verdict.HANG, Outcome.LENGTH, 3),
    "hang_one_rank": ("on", Verdict.HANG, Outcome.LENGTH, 3),
    "hang_capture": ("on", Verdict.HANG, Outcome.MISSING, 3),
    "hang_teardown": ("on", Verdict.HANG, Outcome.EXACT, 3),
    "slow": ("on", Verdict.PASS, Outcome.EXACT, 0),
    "spin": ("on", Verdict.TIMEOUT, Outcome.LENGTH, 3),
    "churn": ("on", Verdict.TIMEOUT, Outcome.LENGTH, 3),
    "garbage": ("on", Verdict.CRASH, Outcome.EXACT, 4),
    "signal": ("on", Verdict.CRASH, Outcome.LENGTH, 4),
    "raise": ("on", Verdict.CRASH, Outcome.LENGTH, 4),
    "leave": ("on", Verdict.CRASH, Outcome.LENGTH, 4),
    "bad_exit": ("on", Verdict.CRASH, Outcome.EXACT, 4),
    "no_replay": ("on", Verdict.VACUOUS, Outcome.EXACT, 5),
    "one_rank_eager": ("on", Verdict.VACUOUS, Outcome.EXACT, 5),
    "fallback": ("on", Verdict.VACUOUS, Outcome.EXACT, 5),
    "captures": ("off", Verdict.VACUOUS, Outcome.EXACT, 5),
    "breach": ("on", Verdict.ERROR, Outcome.EXACT, 4),
    "unwitnessed": ("on", Verdict.UNWITNESSED, Outcome.EXACT, 0),
}


def test_every_fault_of_the_fake_target_has_a_row() -> None:
    assert EXPECTED.keys() == FAULTS.keys()


@pytest.mark.parametrize("fault", EXPECTED)
def test_a_planted_fault_comes_out_as_its_verdict(fault: str, fake_world: FakeWorld) -> None:
    graph, verdict, outcome, exit_code = EXPECTED[fault]
    run, code = fake_world.run(fake_world.matrix(tp=[2], graph=[graph], fault=[fault]))
    finished = _only(run)
    assert (finished.verdict, finished.prompts[0].outcome, code) == (verdict, outcome, exit_code), finished.reason
    assert bool(finished.reason) == (verdict is not Verdict.PASS)


@pytest.mark.parametrize("fault", ["no_replay", "one_rank_eager", "fallback", "replays_off_by_one"])
def test_faults_of_graphs_leave_the_graph_off_column_green(fault: str, fake_world: FakeWorld) -> None:
    run, code = fake_world.run(fake_world.matrix(tp=[1, 2], graph=["off"], fault=[fault]))
    assert _verdicts(run) == ["PASS", "PASS"]
    assert code is ExitCode.PASS


def test_the_other_cells_run_after_one_has_hung_and_the_worst_verdict_wins(fake_world: FakeWorld) -> None:
    faults = ["none", "hang", "signal", "drift", "no_replay", "none"]
    run, code = fake_world.run(fake_world.matrix(fault=faults[:-1], settings={"graph": "on", "tp": 2}))
    assert _verdicts(run) == ["PASS", "HANG", "CRASH", "TOKENS", "VACUOUS"]
    assert code is ExitCode.HANG


def test_a_fix_switched_off_shows_in_the_cells_of_its_signature_alone(fake_world: FakeWorld) -> None:
    run, code = fake_world.run(fake_world.matrix(tp=[1, 2], graph=["off", "on"]), fixes_off=("refresh",))
    assert (_verdicts(run), code) == (["PASS", "TOKENS", "PASS", "TOKENS"], ExitCode.TOKENS)


def test_a_declared_fallback_passes_but_is_not_counted_as_graph_on(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(graph=["on"], fault=["fallback"], expect_fallback=["kv_dtype"])
    run, code = fake_world.run(matrix)
    finished = _only(run)
    assert (finished.verdict, finished.declared_eager, code) == (Verdict.PASS, True, ExitCode.PASS)


def test_a_fallback_that_was_not_declared_is_vacuous(fake_world: FakeWorld) -> None:
    run, code = fake_world.run(fake_world.matrix(graph=["on"], fault=["fallback"], expect_fallback=[]))
    assert (_only(run).verdict, code) == (Verdict.VACUOUS, ExitCode.VACUOUS)


def test_a_batch_above_the_largest_bucket_is_not_eligible(fake_world: FakeWorld) -> None:
    run, code = fake_world.run(fake_world.matrix(graph=["on"], buckets=["1", "1,2", "1,2,4"]))
    eligible = [finished.eligible_lane_tokens for finished in _finished(run)]
    # Answers of 12, 9 and 5 tokens decode together: 4 steps of 3 lanes, 4 of 2, 3 of 1.
    assert eligible == [3, 3 + 8, 3 + 8 + 12]
    assert [finished.reason for finished in _finished(run)] == [
        "8 of 11 decode steps ran eager: their batches are larger than the largest bucket",
        "4 of 11 decode steps ran eager: their batches are larger than the largest bucket",
        "",
    ]
    assert code is ExitCode.PASS


def test_cells_that_lack_devices_are_skipped_and_make_the_run_incomplete(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(tp=[1, 2, 4], settings={"device": "cuda"})
    run, code = fake_world.run(matrix, num_devices=2)
    assert (_verdicts(run), code) == (["PASS", "PASS", "SKIPPED"], ExitCode.INCOMPLETE)
    assert _finished(run)[2].reason == "needs 4 cuda devices, found 2"
    assert fake_world.run(matrix, num_devices=2, allow_skipped=True)[1] is ExitCode.PASS
    for allow_skipped in (False, True):
        assert fake_world.run(matrix, num_devices=0, allow_skipped=allow_skipped)[1] is ExitCode.VACUOUS, "nothing ran"
    assert fake_world.run(fake_world.matrix(tp=[1, 2, 4]), num_devices=0)[1] is ExitCode.PASS, "a CPU needs none"


def test_a_required_backend_must_have_replayed_graphs(fake_world: FakeWorld) -> None:
    assert fake_world.run(fake_world.matrix(graph=["off", "on"]), require_backend="fake")[1] is ExitCode.PASS
    assert fake_world.run(fake_world.matrix(graph=["off"]), require_backend="fake")[1] is ExitCode.VACUOUS


def test_a_missing_golden_costs_its_cells_and_runs_nothing(fake_world: FakeWorld) -> None:
    fake_world.golden_file.unlink()
    run, code = fake_world.run(fake_world.matrix(graph=["off", "on"]))
    assert set(_verdicts(run)) == {"MISSING"}
    assert code is ExitCode.GOLDEN
    assert not (run.path / "attempts").exists()


def test_one_weight_byte_changed_makes_the_golden_stale(fake_world: FakeWorld) -> None:
    weights = fake_world.path / "toy" / "model.safetensors"
    weights.write_bytes(b"W" + weights.read_bytes()[1:])
    run, code = fake_world.run(fake_world.matrix(graph=["off"]))
    finished = _only(run)
    assert (finished.verdict, code) == (Verdict.STALE, ExitCode.GOLDEN)
    assert "model.weights" in finished.reason


def test_an_edited_golden_is_not_judged_by(fake_world: FakeWorld) -> None:
    content = fake_world.golden_file.read_bytes()
    fake_world.golden_file.write_bytes(content.replace(b'"finish":"length"', b'"finish":"stop"', 1))
    run, code = fake_world.run(fake_world.matrix(graph=["off"]))
    assert (_only(run).verdict, code) == (Verdict.STALE, ExitCode.GOLDEN)


def test_one_golden_token_changed_and_rehashed_names_prompt_and_step(fake_world: FakeWorld) -> None:
    def spoil(prompt: str, answer: tuple[int, ...]) -> tuple[int, ...]:
        return (*answer[:6], 0, *answer[7:]) if prompt == "two" else answer

    write_golden_of(fake_world, spoil)
    run, code = fake_world.run(fake_world.matrix(graph=["off"]))
    finished = _only(run)
    wrong = [prompt for prompt in finished.prompts if prompt.outcome is not Outcome.EXACT]
    assert [(prompt.prompt, prompt.step, prompt.expected) for prompt in wrong] == [("two", 6, 0)]
    assert (finished.reason, code) == ("1 of 3 prompts differ; first 'two' at token 6", ExitCode.TOKENS)


def test_worst_wins_in_the_documented_order() -> None:
    order = [3, 4, 1, 6, 5, 7, 8, 0]
    for position, code in enumerate(order):
        assert worst([ExitCode(other) for other in order[position:]]) == code
    assert worst([]) is ExitCode.VACUOUS
    assert MEANING.keys() == set(ExitCode)


def _only(run: Run) -> AttemptFinished:
    (finished,) = _finished(run)
    return finished


def _verdicts(run: Run) -> list[str]:
    return [finished.verdict.value for finished in _finished(run)]


def _finished(run: Run) -> list[AttemptFinished]:
    return [attempt.finished for attempt in run.attempts if attempt.finished is not None]
