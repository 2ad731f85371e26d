"""Owns whether a cell took the path that it claims: captures, replays and fall-backs against eligible work."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphcheck.harness.judging.eligible import eligible_lane_tokens, is_oversize, largest_bucket
from graphcheck.schema.base import AxisValue
from graphcheck.schema.events import StepEvent
from graphcheck.schema.evidence import Evidence
from graphcheck.schema.golden import Golden
from graphcheck.schema.suite import Workload


@dataclass(frozen=True)
class RankWitness:
    """One rank's evidence beside the harness's own count of what it had to replay."""

    rank: int
    evidence: Evidence
    eligible: int
    fallbacks: frozenset[str]
    replayed_in_steps: int | None
    """Lane-tokens of the steps that say of themselves that they were replayed; None if no step says either way."""


def witnesses(
    settings: Mapping[str, AxisValue],
    workload: Workload,
    golden: Golden,
    steps: Sequence[StepEvent],
    evidence: Mapping[int, Evidence],
    surplus: Mapping[int, int],
) -> tuple[RankWitness, ...]:
    """One a rank; a rank that gave no evidence gets one in which everything is UNKNOWN.

    `surplus` names the ranks: tokens by which each one's answers are longer than the golden's, where they may be.
    """
    largest = largest_bucket(settings)
    found = []
    for rank, longer in surplus.items():
        own = [step for step in steps if step.rank == rank]
        given = evidence.get(rank, Evidence())
        eligible = eligible_lane_tokens(workload, golden, own, largest) + longer
        found.append(RankWitness(rank, given, eligible, _fallbacks(given, own, largest), _replayed(own)))
    return tuple(found)


def _replayed(steps: Sequence[StepEvent]) -> int | None:
    said = [step for step in steps if step.replayed is not None]
    return sum(step.live for step in said if step.replayed) if said else None


def contradicted(settings: Mapping[str, AxisValue], ranks: Sequence[RankWitness]) -> str | None:
    """Where the evidence of a token-exact cell contradicts its settings or itself, or None.

    A counter that a target cannot give is no contradiction; one that some ranks give and another does not is.
    """
    tp = settings.get("tp")
    if isinstance(tp, int) and len(ranks) != tp:
        return f"tp is {tp}, but {len(ranks)} ranks ran"
    silent = [rank.rank for rank in ranks if rank.evidence == Evidence()]
    if silent:
        return f"rank {silent[0]} gave no evidence, though others did" if len(silent) < len(ranks) else None
    return next(filter(None, (_contradicted(settings, rank) for rank in ranks)), None)


def _contradicted(settings: Mapping[str, AxisValue], rank: RankWitness) -> str | None:
    given, tp, device = rank.evidence, settings.get("tp"), settings.get("device")
    if isinstance(tp, int) and tp > 1 and given.collectives == 0:
        return f"tp is {tp}, but rank {rank.rank} entered no collective"
    if device is not None and given.backend.device != device:
        return f"device is {device}, but rank {rank.rank} ran on {given.backend.device}"
    counted, said = given.replayed_lane_tokens, rank.replayed_in_steps
    if counted is not None and said is not None and counted != said:
        return f"rank {rank.rank} counted {counted} replayed lane-tokens, but its steps say {said}"
    watched = settings.get("audit") == "on" and settings.get("graph") == "on" and not rank.fallbacks
    return f"audit is on, but rank {rank.rank} was not audited" if watched and given.audit is None else None


def _fallbacks(evidence: Evidence, steps: Sequence[StepEvent], largest: int | None) -> frozenset[str]:
    """Reasons for which decode steps that a bucket covers ran eager, by the counters or by the steps themselves."""
    fell_back = [step for step in steps if step.phase == "decode" and step.fallback]
    excused = Counter(step.fallback for step in fell_back if is_oversize(step, largest))
    counted = {reason for reason, count in (evidence.fallbacks or {}).items() if count > excused[reason]}
    reported = {step.fallback for step in fell_back if step.fallback and not is_oversize(step, largest)}
    return frozenset(counted | reported)


def vacuous(graph: AxisValue | None, ranks: Sequence[RankWitness], expect_fallback: Sequence[str]) -> str | None:
    """Why a token-exact cell proves nothing, or None. `graph` is the cell's setting, None if the target has none."""
    if graph == "off":
        return next(filter(None, map(_ran_graphs, ranks)), None)
    if graph == "on":
        return next(filter(None, (_missed_graphs(rank, expect_fallback) for rank in ranks)), None)
    return None


def _ran_graphs(rank: RankWitness) -> str | None:
    captures, replays = rank.evidence.captures or 0, rank.evidence.replays or 0
    if not captures and not replays:
        return None
    return f"graphs are off, but rank {rank.rank} captured {captures} and replayed {replays}"


def _missed_graphs(rank: RankWitness, expect_fallback: Sequence[str]) -> str | None:
    if rank.eligible <= 0:
        return "no token of this suite was eligible for a graph in this cell"
    undeclared = sorted(rank.fallbacks - set(expect_fallback))
    if undeclared:
        return f"rank {rank.rank} fell back to eager: {', '.join(undeclared)}"
    replayed = rank.evidence.replayed_lane_tokens
    if replayed is None or rank.fallbacks or replayed >= rank.eligible:
        return None
    return f"rank {rank.rank} replayed {replayed} of {rank.eligible} eligible lane-tokens"


def unwitnessed(graph: AxisValue | None, ranks: Sequence[RankWitness]) -> str | None:
    """Which counter a verdict would need and the target cannot give, or None."""
    for rank in ranks:
        if graph == "on" and rank.evidence.replayed_lane_tokens is None and not rank.fallbacks:
            return f"rank {rank.rank} cannot tell how many lane-tokens it replayed"
        if graph == "off" and (rank.evidence.captures is None or rank.evidence.replays is None):
            return f"rank {rank.rank} cannot tell that it captured and replayed nothing"
    return None


def declared_eager(graph: AxisValue | None, ranks: Sequence[RankWitness]) -> bool:
    """True if a graph-on cell ran eager for reasons that the matrix declares (asked once `vacuous` has said no)."""
    return graph == "on" and any(rank.fallbacks for rank in ranks)
