"""The verdict: every rule, planted alone, and the order in which rules win."""

from typing import Any

import pytest

from graphcheck.harness.judging.death import EARLY_EXIT
from graphcheck.harness.judging.judge import judge
from graphcheck.schema.attempt import Attempt, Cell
from graphcheck.schema.base import AxisValue
from graphcheck.schema.events import ErrorEvent, ExitEvent, StepEvent
from graphcheck.schema.evidence import AuditFinding, Backend, Evidence
from graphcheck.schema.matrix import Policy
from graphcheck.schema.run import AttemptFacts, AttemptFinished, AttemptStarted, Stall
from graphcheck.schema.suite import Request, Workload
from graphcheck.schema.verdicts import Verdict
from tests.goldens import golden_of

ANSWERS = {"a": (1, 2, 3, 4, 5), "b": (6, 7, 8)}
ELIGIBLE = 4 + 2
WORKLOAD = Workload(suite="s", requests=tuple(Request(id=p, prompt_ids=(1,), max_new_tokens=9) for p in ANSWERS))
ON = Evidence(
    backend=Backend(graph="tape"), captures=4, replays=4, replayed_lane_tokens=ELIGIBLE, fallbacks={}, largest_bucket=4
)
OFF = Evidence(captures=0, replays=0, replayed_lane_tokens=0, fallbacks={})
HANG = Stall(
    kind="hang", phase="decode", step=3, limit_seconds=2, stalled_seconds=2.1, journals=(), reason="stood still"
)


def steps(num_ranks: int = 2, wrong: tuple[str, int, int] | None = None, leave_out: str = "") -> list[StepEvent]:
    """Right answers of both prompts on every rank, decoded together; `wrong` is prompt, token, rank."""
    events = []
    for rank in range(num_ranks):
        for index in range(5):
            live = [prompt for prompt, ids in ANSWERS.items() if len(ids) > index and prompt != leave_out]
            ids = tuple(99 if wrong == (prompt, index, rank) else ANSWERS[prompt][index] for prompt in live)
            events.append(
                StepEvent(
                    rank=rank,
                    step=index,
                    phase="decode" if index else "prefill",
                    requests=tuple(live),
                    index=(index,) * len(live),
                    argmax=ids,
                    ids=ids,
                    finite=(True,) * len(live),
                    live=len(live),
                )
            )
    return events


def verdict(
    events: list[StepEvent] | None = None,
    *,
    graph: str | None = "on",
    evidence: dict[int, Evidence] | None = None,
    expect_fallback: tuple[str, ...] = (),
    buckets: str = "1,2,4",
    num_tokens: int = 9,
    **facts: Any,
) -> AttemptFinished:
    settings: dict[str, AxisValue] = {"tp": 2, "buckets": buckets}
    if graph is not None:
        settings["graph"] = graph
    started = AttemptStarted(
        key="k",
        attempt=Attempt(cell=Cell(axes={"tp": 2})),
        model="m",
        suite="s",
        dtype="float32",
        settings=settings,
        workload=WORKLOAD,
        at="",
    )
    default = dict.fromkeys((0, 1), OFF if graph == "off" else ON)
    recorded = AttemptFacts.model_validate(
        {"num_ranks": 2, "evidence": default if evidence is None else evidence, **facts}
    )
    golden = golden_of({prompt: ids[:num_tokens] for prompt, ids in ANSWERS.items()})
    policy = Policy(expect_fallback=expect_fallback)
    return judge(started, golden, policy, steps() if events is None else events, recorded, "")


def error(kind: str = "crash", rank: int = 0, **fields: object) -> ErrorEvent:
    return ErrorEvent.model_validate(
        {"rank": rank, "kind": kind, "error": "ValueError", "message": "no page\nat all", "phase": "decode", **fields}
    )


def test_right_answers_with_full_replay_pass() -> None:
    finished = verdict()
    assert (finished.verdict, finished.reason, finished.eligible_lane_tokens) == (Verdict.PASS, "", ELIGIBLE)
    assert not finished.declared_eager
    assert finished.backend == Backend(graph="tape")


def test_right_answers_without_graphs_pass_and_count_no_eligible_work() -> None:
    finished = verdict(graph="off")
    assert (finished.verdict, finished.eligible_lane_tokens) == (Verdict.PASS, None)


@pytest.mark.parametrize("rank", [0, 1])
def test_one_wrong_token_on_any_rank_is_tokens(rank: int) -> None:
    finished = verdict(steps(wrong=("b", 2, rank)))
    assert finished.verdict is Verdict.TOKENS
    assert finished.reason == "1 of 2 prompts differ; first 'b' at token 2"


def test_a_rank_that_reported_nothing_is_noticed() -> None:
    assert verdict(steps(num_ranks=1)).verdict is Verdict.TOKENS


def test_one_lane_token_short_of_the_eligible_on_one_rank_is_vacuous() -> None:
    short = ON.model_copy(update={"replayed_lane_tokens": ELIGIBLE - 1})
    finished = verdict(evidence={0: ON, 1: short})
    assert (finished.verdict, finished.reason) == (Verdict.VACUOUS, "rank 1 replayed 5 of 6 eligible lane-tokens")


def test_the_engines_own_largest_bucket_does_not_lower_what_it_owes() -> None:
    modest = ON.model_copy(update={"replayed_lane_tokens": 2, "largest_bucket": 1})
    assert verdict(evidence=dict.fromkeys((0, 1), modest)).verdict is Verdict.VACUOUS
    assert verdict(evidence=dict.fromkeys((0, 1), modest), buckets="1").verdict is Verdict.PASS


def test_nothing_eligible_is_vacuous() -> None:
    first = [step for step in steps() if step.phase == "prefill"]
    finished = verdict(first, num_tokens=1)
    assert (finished.verdict, finished.eligible_lane_tokens) == (Verdict.VACUOUS, 0)
    assert verdict(first, num_tokens=1, graph="off").verdict is Verdict.PASS


@pytest.mark.parametrize("counter", ["captures", "replays"])
def test_graphs_that_ran_in_a_graph_off_cell_are_vacuous(counter: str) -> None:
    guilty = OFF.model_copy(update={counter: 1})
    assert verdict(graph="off", evidence={0: OFF, 1: guilty}).verdict is Verdict.VACUOUS


@pytest.mark.parametrize(
    ("graph", "known", "counter"),
    [("on", ON, "replayed_lane_tokens"), ("off", OFF, "captures"), ("off", OFF, "replays")],
)
def test_an_unknown_counter_on_one_rank_is_unwitnessed_never_a_pass(graph: str, known: Evidence, counter: str) -> None:
    unknown = known.model_copy(update={counter: None})
    assert verdict(graph=graph, evidence={0: known, 1: unknown}).verdict is Verdict.UNWITNESSED
    assert verdict(graph=graph, evidence={0: known}).verdict is Verdict.VACUOUS, "rank 1 alone gave no evidence"


def test_a_target_without_graphs_claims_nothing_that_needs_a_witness() -> None:
    assert verdict(graph=None, evidence={}).verdict is Verdict.PASS


FELL_BACK = ON.model_copy(update={"fallbacks": {"kv_dtype": 2}, "replayed_lane_tokens": 0})


@pytest.mark.parametrize(
    ("declared", "expected"),
    [((), Verdict.VACUOUS), (("kv_dtype",), Verdict.PASS), (("other",), Verdict.VACUOUS)],
)
def test_a_fallback_passes_only_by_declaration(declared: tuple[str, ...], expected: Verdict) -> None:
    finished = verdict(evidence=dict.fromkeys((0, 1), FELL_BACK), expect_fallback=declared)
    assert (finished.verdict, finished.declared_eager) == (expected, expected is Verdict.PASS)


def test_every_reason_must_be_declared() -> None:
    both = FELL_BACK.model_copy(update={"fallbacks": {"kv_dtype": 1, "batch": 1}})
    finished = verdict(evidence={0: ON, 1: both}, expect_fallback=("kv_dtype",))
    assert (finished.verdict, finished.reason) == (Verdict.VACUOUS, "rank 1 fell back to eager: batch")


def test_a_fallback_that_only_the_steps_tell_counts_too() -> None:
    events = [step.model_copy(update={"fallback": "hidden"}) if step.step == 2 else step for step in steps()]
    assert verdict(events).verdict is Verdict.VACUOUS


def test_a_fallback_of_a_batch_that_no_bucket_covers_is_none() -> None:
    oversize = [step.model_copy(update={"fallback": "batch"}) if len(step.ids) == 2 else step for step in steps()]
    counted = ON.model_copy(update={"fallbacks": {"batch": 2}, "replayed_lane_tokens": 2})
    assert verdict(oversize, evidence=dict.fromkeys((0, 1), counted), buckets="1").verdict is Verdict.PASS
    more = counted.model_copy(update={"fallbacks": {"batch": 3}})
    assert verdict(oversize, evidence={0: counted, 1: more}, buckets="1").verdict is Verdict.VACUOUS


@pytest.mark.parametrize(
    ("facts", "expected", "reason"),
    [
        ({"stall": HANG}, Verdict.HANG, "stood still"),
        ({"stall": HANG.model_copy(update={"kind": "timeout"})}, Verdict.TIMEOUT, "stood still"),
        ({"errors": (error(),)}, Verdict.CRASH, "rank 0 raised ValueError in decode: no page"),
        (
            {"exits": (ExitEvent(rank=1, signal=9),)},
            Verdict.CRASH,
            "rank 1 was killed by SIGKILL (signal 9) after step 4",
        ),
        ({"exits": (ExitEvent(rank=1, status=3),)}, Verdict.CRASH, "rank 1 left with status 3 after step 4"),
        (
            {"exits": (ExitEvent(rank=1),)},
            Verdict.CRASH,
            "rank 1 left with a status that could not be read after step 4",
        ),
        (
            {"errors": (error(error=EARLY_EXIT, message="left early"),)},
            Verdict.CRASH,
            "rank 0 left early, in decode",
        ),
        ({"errors": (error("oom"),)}, Verdict.OOM, "rank 0 ran out of memory in decode: no page"),
        (
            {"errors": (error("request", request="b"),)},
            Verdict.ERROR,
            "1 of 2 prompts failed; first 'b': ValueError: no page",
        ),
    ],
)
def test_each_fact_gives_its_verdict_with_a_sentence(facts: dict[str, Any], expected: Verdict, reason: str) -> None:
    finished = verdict(**facts)
    assert (finished.verdict, finished.reason) == (expected, reason)


def test_a_silent_death_is_placed_after_the_last_step_of_its_own_rank() -> None:
    killed = (ExitEvent(rank=1, signal=9),)
    cut = [step for step in steps() if step.rank == 0 or step.step < 2]
    assert verdict(cut, exits=killed).reason.endswith("after step 1")
    none = [step for step in steps() if step.rank == 0]
    assert verdict(none, exits=killed).reason.endswith("before its first step")


def test_exits_of_ranks_that_left_in_order_are_no_crash() -> None:
    assert verdict(exits=tuple(ExitEvent(rank=rank, status=0) for rank in (0, 1))).verdict is Verdict.PASS


def test_the_consequence_of_a_death_is_not_its_cause() -> None:
    follows = error(rank=0, consequence=True)
    finished = verdict(errors=(follows,), exits=(ExitEvent(rank=0, status=1), ExitEvent(rank=1, signal=9)))
    assert finished.reason.startswith("rank 1 was killed by SIGKILL")


def test_the_exit_after_running_out_of_memory_is_no_crash() -> None:
    finished = verdict(errors=(error("oom"),), exits=(ExitEvent(rank=0, status=1), ExitEvent(rank=1, signal=6)))
    assert finished.verdict is Verdict.OOM


def test_a_prompt_without_tokens_is_an_error_not_a_missing_golden() -> None:
    finished = verdict(steps(leave_out="b"))
    assert (finished.verdict, finished.reason) == (Verdict.ERROR, "1 of 2 prompts gave no tokens; first 'b'")


@pytest.mark.parametrize("stray", [{"requests": ("z",)}, {"run": 1}, {"rank": 2}])
def test_tokens_that_nobody_asked_for_are_an_error(stray: dict[str, object]) -> None:
    extra = steps()[-1].model_copy(update={"index": (0,), **stray})
    assert verdict([*steps(), extra]).verdict is Verdict.ERROR


STALE = AuditFinding(clause="contents", buffer="positions", detail="lane 0 holds 3, not 4", replay=2)


def test_a_breach_that_the_audit_found_is_never_green() -> None:
    audited = {0: ON.model_copy(update={"audit": ()}), 1: ON.model_copy(update={"audit": (STALE, STALE)})}
    finished = verdict(evidence=audited)
    told = "tokens are right, but by the audit of rank 1, replay 2, contents of positions: lane 0 holds 3, not 4"
    assert (finished.verdict, finished.reason) == (Verdict.ERROR, told)
    assert verdict(evidence={**audited, 1: audited[0]}).verdict is Verdict.PASS


def test_a_breach_that_shows_in_tokens_is_tokens_and_comes_before_vacuous() -> None:
    audited = dict.fromkeys((0, 1), ON.model_copy(update={"audit": (STALE,)}))
    assert verdict(steps(wrong=("b", 2, 0)), evidence=audited).verdict is Verdict.TOKENS
    eager = dict.fromkeys((0, 1), FELL_BACK.model_copy(update={"audit": (STALE,)}))
    assert verdict(evidence=eager).verdict is Verdict.ERROR


def test_the_first_verdict_in_the_documented_order_wins() -> None:
    refused, wrong, eager = error("request", request="b"), steps(wrong=("a", 1, 0)), dict.fromkeys((0, 1), FELL_BACK)
    killed = (ExitEvent(rank=1, signal=9),)
    planted: list[tuple[Verdict, dict[str, Any]]] = [
        (Verdict.HANG, {"stall": HANG, "exits": killed, "errors": (error("oom"), refused)}),
        (Verdict.CRASH, {"exits": killed, "errors": (error(rank=1), error("oom"), refused)}),
        (Verdict.OOM, {"exits": killed, "errors": (error("oom"), refused)}),
        (Verdict.ERROR, {"errors": (refused,)}),
        (Verdict.TOKENS, {}),
    ]
    for expected, facts in planted:
        assert verdict(wrong, evidence=eager, **facts).verdict is expected
    unknown = {0: FELL_BACK, 1: Evidence()}
    assert verdict(evidence=unknown).verdict is Verdict.VACUOUS, "before UNWITNESSED"
