"""Owns `--delay rank=1,site=layers.3.o_proj.reduce,ms=20`: what is typed, checked against what is there to delay."""

import re
from collections.abc import Sequence

from pydantic import ValidationError

from graphcheck.harness.planning.plan import PlannedAttempt
from graphcheck.schema.attempt import Delay
from graphcheck.schema.base import broken_rule
from graphcheck.schema.capabilities import Capabilities
from graphcheck.schema.errors import UsageError

_TODO = "write it like --delay rank=1,site=layers.0.o_proj.reduce,ms=20"


def parse_delays(
    texts: Sequence[str], capabilities: Capabilities, attempts: Sequence[PlannedAttempt]
) -> tuple[Delay, ...]:
    """The delays that were typed, each of which some cell of `attempts` can have.

    Raises:
        UsageError: not a delay, a place twice, a site, rank or layer that no cell has, or a target that cannot delay.
    """
    delays: list[Delay] = []
    for text in texts:
        delay = _parse(text)
        if any((delay.rank, delay.site) == (other.rank, other.site) for other in delays):
            raise UsageError(f"--delay {text}", "this rank is delayed at this site already", "give each place once")
        _check(text, delay, capabilities, attempts)
        delays.append(delay)
    return tuple(delays)


def _parse(text: str) -> Delay:
    parts = [part.partition("=")[::2] for part in text.split(",")]
    fields = dict(parts)
    if len(fields) < len(parts):
        raise UsageError(f"--delay {text}", "a part is given twice", _TODO)
    strangers = [part for part in fields if part and part not in Delay.model_fields]
    missing = [part for part in Delay.model_fields if part not in fields]
    if strangers or missing:
        rule = f"a delay has no part {strangers[0]!r}" if strangers else f"it gives no {missing[0]}"
        raise UsageError(f"--delay {text}", rule, _TODO)
    try:
        return Delay.model_validate_strings(fields)
    except ValidationError as failure:
        raise UsageError(f"--delay {text}", broken_rule(failure), _TODO) from None


def _check(text: str, delay: Delay, capabilities: Capabilities, attempts: Sequence[PlannedAttempt]) -> None:
    matches = [match for pattern in capabilities.sites if (match := _match(pattern, delay.site))]
    if not matches:
        choices = ", ".join(capabilities.sites) or "none"
        raise UsageError(f"--delay {text}", f"target {capabilities.target!r} has no such site", f"sites: {choices}")
    num_ranks = max(int(planned.settings.get("tp", 1)) for planned in attempts)
    if delay.rank >= num_ranks:
        raise UsageError(f"--delay {text}", f"no cell has a rank {delay.rank}", f"ranks: 0 to {num_ranks - 1}")
    layer = matches[0].groupdict().get("layer")
    if layer is not None and int(layer) >= (num_layers := max(planned.model.num_layers for planned in attempts)):
        raise UsageError(f"--delay {text}", f"no model has a layer {layer}", f"layers: 0 to {num_layers - 1}")


def _match(pattern: str, site: str) -> re.Match[str] | None:
    return re.fullmatch(re.escape(pattern).replace(r"\{layer\}", r"(?P<layer>0|[1-9][0-9]{0,8})"), site)
