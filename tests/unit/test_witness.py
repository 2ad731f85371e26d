"""Evidence that contradicts a cell's settings, or a rank's own steps, is never a pass."""

import pytest

from graphcheck.harness.judging.witness import RankWitness, contradicted
from graphcheck.schema.evidence import AuditFinding, Backend, Evidence

SETTINGS = {"tp": 2, "graph": "on", "device": "cpu", "audit": "off"}
GOOD = Evidence(backend=Backend(graph="tape", device="cpu", collectives="gloo"), replayed_lane_tokens=6, collectives=9)


def ranks(*evidence: Evidence, said: int | None = 6) -> list[RankWitness]:
    return [RankWitness(rank, given, 6, frozenset(), said) for rank, given in enumerate(evidence)]


def changed(**fields: object) -> Evidence:
    return GOOD.model_copy(update=fields)


def test_evidence_that_fits_is_no_contradiction() -> None:
    assert contradicted(SETTINGS, ranks(GOOD, GOOD)) is None
    assert contradicted(SETTINGS, ranks(GOOD, GOOD, said=None)) is None
    audited = changed(audit=(AuditFinding(clause="tail", buffer="b", detail="d", replay=1),))
    assert contradicted({**SETTINGS, "audit": "on"}, ranks(audited, audited)) is None
    assert contradicted(SETTINGS, ranks(Evidence(), Evidence())) is None, "unknown on all ranks is unwitnessed instead"


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (Evidence(), "rank 1 gave no evidence"),
        (changed(collectives=0), "tp is 2, but rank 1 entered no collective"),
        (changed(backend=Backend(device="cuda")), "device is cpu, but rank 1 ran on cuda"),
        (changed(replayed_lane_tokens=7), "rank 1 counted 7 replayed lane-tokens, but its steps say 6"),
    ],
)
def test_one_rank_that_contradicts_is_named(second: Evidence, message: str) -> None:
    reason = contradicted(SETTINGS, ranks(GOOD, second))
    assert reason is not None
    assert message in reason


def test_tp_cell_with_one_rank_is_named() -> None:
    assert contradicted(SETTINGS, ranks(GOOD)) == "tp is 2, but 1 ranks ran"


def test_audit_that_never_ran_is_named() -> None:
    assert contradicted({**SETTINGS, "audit": "on"}, ranks(GOOD, GOOD)) == "audit is on, but rank 0 was not audited"
    assert contradicted({**SETTINGS, "audit": "on", "graph": "off"}, ranks(GOOD, GOOD)) is None
