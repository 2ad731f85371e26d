"""The best logits of each step, on request: sorted, led by what was picked, the same bits in every cell."""

from graphcheck.engine.engine import NUM_TOP
from tests.engine.conftest import EngineMaker
from tests.engine.outputs import random_requests, run_engine

VOCAB = 211


def test_each_row_s_best_logits_are_led_by_what_was_picked(make_engine: EngineMaker) -> None:
    requests = random_requests(5, vocab=VOCAB)
    eager = run_engine(make_engine(logits="top"), requests).steps
    replayed = run_engine(make_engine(logits="top", graph="on"), requests).steps
    assert [step.top for step in eager] == [step.top for step in replayed]
    for step in eager:
        assert step.top is not None
        assert len(step.top) == len(step.requests)
        for picked, top in zip(step.argmax_ids, step.top, strict=True):
            assert len(top) == NUM_TOP
            assert top[0][0] == picked
            assert [logit for _, logit in top] == sorted((logit for _, logit in top), reverse=True)
            assert all(0 <= token < VOCAB for token, _ in top), "no padding of the vocabulary"


def test_nobody_who_did_not_ask_is_told(make_engine: EngineMaker) -> None:
    requests = random_requests(1, vocab=VOCAB)
    for settings in ({}, {"logits": "digest"}):
        assert all(step.top is None for step in run_engine(make_engine(**settings), requests).steps)


def test_an_audit_brings_the_digests_with_it(make_engine: EngineMaker) -> None:
    requests = random_requests(1, vocab=VOCAB)
    assert all(step.logits_sha for step in run_engine(make_engine(audit="on"), requests).steps)
