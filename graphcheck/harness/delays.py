"""Owns `--delay rank=1,site=layers.3.o_proj.reduce,ms=20`: what is typed, checked against what the target has."""

import re
from collections.abc import Sequence

from pydantic import ValidationError

from graphcheck.schema.attempt import Delay
from graphcheck.schema.capabilities import Capabilities
from graphcheck.schema.errors import UsageError

_TODO = "write it like --delay rank=1,site=layers.0.o_proj.reduce,ms=20"


def parse_delays(texts: Sequence[str], capabilities: Capabilities) -> tuple[Delay, ...]:
    """The delays that were typed.

    Raises:
        UsageError: not a delay, a site that no model of this target has, or a target that cannot delay.
    """
    return tuple(_parse(text, capabilities) for text in texts)


def _parse(text: str, capabilities: Capabilities) -> Delay:
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        delay = Delay.model_validate_strings(fields)
    except ValidationError as failure:
        error = failure.errors(include_url=False)[0]
        raise UsageError(f"--delay {text}", f"{'.'.join(map(str, error['loc']))}: {error['msg']}", _TODO) from None
    if not any(_matches(pattern, delay.site) for pattern in capabilities.sites):
        choices = ", ".join(capabilities.sites) or "none"
        raise UsageError(f"--delay {text}", f"target {capabilities.target!r} has no such site", f"sites: {choices}")
    return delay


def _matches(pattern: str, site: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\{layer\}", r"\d+"), site) is not None
