"""Resolving a suite: text into ids, the stop rule into explicit ids, and what does not fit a model."""

from pathlib import Path

import pytest

from graphcheck.harness.files.model_folder import ModelFolder, open_model
from graphcheck.harness.files.suite_file import LoadedSuite, load_suite
from graphcheck.harness.planning.resolve import forced_workload, resolve, resolve_for_golden
from graphcheck.schema.errors import GoldenStale, SuiteError
from graphcheck.schema.golden import Golden, GoldenHeader, GoldenPrompt, GoldenStep
from tests.tiny_model import EOS, make_tiny_llama

VOCAB = 41
TEXT = """\
name = "s"
passes = 2
stop = { fraction = 0.25, seed = 7 }

[[prompts]]
id = "a"
text = "w1 w2 w3"
max_new_tokens = 9

[[prompts]]
id = "b"
ids = [5, 6]
arrival = 3
max_new_tokens = 4
"""
ANSWERS = {"a": ((1, 2, 3), (11, 12, 13, EOS)), "b": ((5, 6), (20, 21, 22, 23))}


@pytest.fixture
def model(tmp_path: Path) -> ModelFolder:
    return open_model(make_tiny_llama(tmp_path / "tiny", vocab_size=VOCAB, num_layers=1, max_context=32))


def suite(folder: Path, text: str = TEXT) -> LoadedSuite:
    (folder / "suites").mkdir(exist_ok=True)
    (folder / "suites" / "s.toml").write_text(text)
    return load_suite("s", folder / "m.toml")


def golden(answers: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = ANSWERS) -> Golden:
    header = GoldenHeader(
        model_name="tiny",
        model={},
        suite="s",
        suite_sha="",
        dtype="float32",
        num_prompts=len(answers),
        reference="",
        versions={},
        body_sha="",
        made_on="",
        command="",
    )
    prompts = tuple(
        GoldenPrompt(
            id=name,
            prompt_ids=prompt_ids,
            ids=ids,
            text="",
            finish="length",
            steps=tuple(GoldenStep(top=((token, 1.0),)) for token in ids),
        )
        for name, (prompt_ids, ids) in answers.items()
    )
    return Golden(header=header, prompts=prompts)


def test_the_golden_is_made_with_eos_alone(model: ModelFolder, tmp_path: Path) -> None:
    workload = resolve_for_golden(suite(tmp_path), model)
    assert [request.prompt_ids for request in workload.requests] == [(1, 2, 3), (5, 6)]
    assert [request.max_new_tokens for request in workload.requests] == [9, 4]
    assert {request.stop_ids for request in workload.requests} == {(EOS,)}
    assert workload.passes == 1


def test_stop_ids_are_eos_and_ids_that_no_right_answer_has(model: ModelFolder, tmp_path: Path) -> None:
    workload = resolve(suite(tmp_path), model, golden())
    assert workload.passes == 2
    assert [request.arrival for request in workload.requests] == [0, 3]
    for request in workload.requests:
        assert request.stop_ids[0] == EOS
        drawn = request.stop_ids[1:]
        assert len(set(drawn)) == round(0.25 * VOCAB)
        assert not set(drawn) & {EOS, *ANSWERS[request.id][1]}
        assert all(0 < token < VOCAB for token in drawn)
        assert request.forced_ids is None
    assert workload.requests[0].stop_ids != workload.requests[1].stop_ids


def test_the_draw_depends_on_seed_and_prompt_id_not_on_order_or_arrival(model: ModelFolder, tmp_path: Path) -> None:
    def stops(text: str) -> dict[str, tuple[int, ...]]:
        return {request.id: request.stop_ids for request in resolve(suite(tmp_path, text), model, golden()).requests}

    head, first, second = TEXT.split("[[prompts]]")
    before = stops(TEXT)
    assert stops(TEXT) == before
    assert stops(f"{head}[[prompts]]{second}\n[[prompts]]{first}") == before
    assert stops(TEXT.replace("arrival = 3", "arrival = 5")) == before
    assert stops(TEXT.replace("seed = 7", "seed = 8")) != before
    # Fixed for good: stored runs are judged again from their stop ids.
    assert before["b"] == (0, 6, 8, 12, 16, 28, 29, 31, 33, 35, 39)


def test_without_a_stop_rule_only_eos_stops(model: ModelFolder, tmp_path: Path) -> None:
    text = TEXT.replace("stop = { fraction = 0.25, seed = 7 }\n", "")
    assert {request.stop_ids for request in resolve(suite(tmp_path, text), model, golden()).requests} == {(EOS,)}


def test_ignore_eos_ends_at_the_goldens_length(model: ModelFolder, tmp_path: Path) -> None:
    requests = resolve(suite(tmp_path), model, golden(), ignore_eos=True).requests
    assert [(request.stop_ids, request.max_new_tokens) for request in requests] == [((), 4), ((), 4)]


def test_a_forced_pass_hands_out_the_goldens_ids(model: ModelFolder, tmp_path: Path) -> None:
    requests = forced_workload(resolve(suite(tmp_path), model, golden()), golden().prompts).requests
    assert [request.forced_ids for request in requests] == [ids for _, ids in ANSWERS.values()]


def test_a_golden_of_other_prompt_ids_is_stale(model: ModelFolder, tmp_path: Path) -> None:
    other = golden(ANSWERS | {"b": ((5, 7), (20, 21, 22, 23))})
    with pytest.raises(GoldenStale, match="prompt b: its prompt_ids are not what the tokenizer gives now"):
        resolve(suite(tmp_path), model, other)


@pytest.mark.parametrize(
    ("old", "new", "line", "rule"),
    [
        ('text = "w1 w2 w3"', 'text = "w1 stranger"', 7, "not in the vocabulary of tiny"),
        ('text = "w1 w2 w3"', 'text = " "', 7, "no token of tiny"),
        ("ids = [5, 6]", f"ids = [5, {VOCAB}]", 12, f"token {VOCAB} is outside the vocabulary"),
        ("ids = [5, 6]", "ids = [5, -1]", 12, "token -1 is outside the vocabulary"),
        ("max_new_tokens = 9", "max_new_tokens = 30", 8, "3 prompt and 30 new tokens exceed the context of tiny, 32"),
        ("fraction = 0.25", "fraction = 0.95", 3, "asks for 39 stop ids and prompt a leaves 37 of 41 free"),
    ],
)
def test_a_suite_that_does_not_fit_the_model(
    model: ModelFolder, tmp_path: Path, old: str, new: str, line: int, rule: str
) -> None:
    with pytest.raises(SuiteError) as caught:
        resolve(suite(tmp_path, TEXT.replace(old, new)), model, golden())
    assert caught.value.value.startswith(f"{tmp_path}/suites/s.toml:{line}: ")
    assert rule in caught.value.rule


def test_the_longest_prompt_that_fits(model: ModelFolder, tmp_path: Path) -> None:
    text = TEXT.replace("max_new_tokens = 9", "max_new_tokens = 29")
    assert resolve(suite(tmp_path, text), model, golden()).requests[0].max_new_tokens == 29
