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
"""Every site, `{layer}` standing for a layer number. `.done` comes after the collective, the same name before it."""


def collective_sites(num_layers: int) -> Iterator[str]:
    """Sites of a step's collectives, in the order in which it meets them."""
    for layer in range(num_layers):
        yield O_PROJ_REDUCE.format(layer=layer)
        yield DOWN_PROJ_REDUCE.format(layer=layer)
    yield LM_HEAD_GATHER


def all_sites(num_layers: int) -> frozenset[str]:
    """Every site of a model."""
    return frozenset(pattern.format(layer=layer) for pattern in PATTERNS for layer in range(num_layers))
