"""`graphcheck run matrix shapes`: green at every edge, and red where a spare lane is left as it was."""

from graphcheck.schema.verdicts import Verdict
from tests.cli.conftest import Program

NUM_PROMPTS = 17
PASSES = 2


def test_every_edge_is_exact_and_batches_over_the_largest_bucket_ran_eager(program: Program) -> None:
    done = program("run", "matrix", "shapes")
    assert done.code == 0, done.output
    cells = done.attempts()
    assert done.last_lines[0].startswith(f"9/9 cells, {9 * NUM_PROMPTS}/{9 * NUM_PROMPTS} token-exact (tape on CPU")
    assert "tp2-graph_off-kv_paged-shapes_exact" in cells
    for cell, attempt in cells.items():
        for evidence in attempt.facts.evidence.values():
            if "graph_on" in cell:
                assert evidence.replayed_lane_tokens == attempt.eligible_lane_tokens
                assert evidence.eager_lane_tokens, "some batches fit no bucket"
                assert evidence.padded_lanes
            else:
                assert evidence.replayed_lane_tokens == 0
    for recorded in done.run.attempts:
        assert {step.run for step in done.run.steps(recorded.started.key)} == set(range(PASSES))


def test_without_pad_clear_both_kv_layouts_are_red_with_graphs_on(program: Program) -> None:
    done = program("run", "matrix", "shapes", "--disable-fix", "pad-clear", "-k", "tp=1")
    assert done.code == 1, done.output
    assert len(done.attempts()) == 4
    red = {cell for cell, attempt in done.attempts().items() if attempt.verdict is Verdict.TOKENS}
    assert red == {"tp1-graph_on-kv_paged-shapes_padded", "tp1-graph_on-kv_static-shapes_padded"}
