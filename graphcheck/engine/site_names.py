"""Owns the names of the places in a step where a hook may look in: stable across versions, free of tensors."""

from collections.abc import Iterator

LAYER = "layers.{layer}"
O_PROJ_REDUCE = "layers.{layer}.o_proj.reduce"
DOWN_PROJ_REDUCE = "layers.{layer}.down_proj.reduce"
LM_HEAD_GATHER = "lm_head.gather"
DONE = ".done"

PATTERNS: tuple[str, ...] = (
    LAYER,
    O_PROJ_REDUCE,
    O_PROJ_REDUCE + DONE,
    DOWN_PROJ_REDUCE,
    DOWN_PROJ_REDUCE + DONE,
    LM_HEAD_GATHER,
    LM_HEAD_GATHER + DONE,
)
"""Every site in the order of a step, `{layer}` standing for a layer number: those of a layer, then the last two.
`.done` comes when the collective's result is in its place, the same name without it before the collective starts."""


def step_sites(num_layers: int) -> Iterator[str]:
    """Every site of a model, in the order in which a step passes them."""
    for layer in range(num_layers):
        for pattern in PATTERNS[:-2]:
            yield pattern.format(layer=layer)
    yield from PATTERNS[-2:]
