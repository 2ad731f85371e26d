"""Owns putting the parts of one rank together: weights, KV cache, collectives, buffers, the step."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from graphcheck.engine.architecture import DecoderConfig, read_config
from graphcheck.engine.attention import attention
from graphcheck.engine.checkpoint import Checkpoint
from graphcheck.engine.collectives import Collectives, SingleRank, StagedCollectives
from graphcheck.engine.config import EngineConfig
from graphcheck.engine.decoder import DecoderModel
from graphcheck.engine.device import Device
from graphcheck.engine.errors import ConfigError
from graphcheck.engine.graphs.base import GraphBackend
from graphcheck.engine.hooks import Hooks
from graphcheck.engine.journal import JournalWriter
from graphcheck.engine.kv_cache import KV_LAYOUTS, KVCache
from graphcheck.engine.numerics import NUM_VIRTUAL_SHARDS, Sharding
from graphcheck.engine.rendezvous import Rendezvous
from graphcheck.engine.rope import RotaryEmbedding
from graphcheck.engine.site_names import step_sites
from graphcheck.engine.sites import FixSites
from graphcheck.engine.step import HostMirror, StepProgram
from graphcheck.engine.step_io import ContractBuffers, StepOutputs
from graphcheck.engine.transport import GlooTransport, NcclTransport, Transport

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class RankParts:
    """What the engine's loop works with. `eager_outputs` is memory of its own: eager never touches `buffers`."""

    program: StepProgram
    buffers: ContractBuffers
    eager_outputs: StepOutputs
    kv_cache: KVCache
    collectives: Collectives
    vocab_size: int


@dataclass(frozen=True)
class RankContext:
    """What a rank has before anything is loaded."""

    config: EngineConfig
    rank: int
    device: Device
    backend: GraphBackend
    journal: JournalWriter
    sites: FixSites
    mirror: HostMirror
    hooks: Hooks


def build(folder: Path, context: RankContext) -> RankParts:
    """Loads a rank's shards and allocates every buffer; the journal counts layers.

    Raises:
        CheckpointError, ConfigError: the folder or the settings cannot be run.
    """
    config, model_config = context.config, read_config(folder)
    if config.context > model_config.max_positions:
        raise ConfigError(
            f"context = {config.context}: the model has {model_config.max_positions} positions; lower `context`"
        )
    sites = list(step_sites(model_config.num_layers))
    context.journal.sites(sites)
    context.hooks.bind(sites)
    sharding = Sharding(NUM_VIRTUAL_SHARDS if config.numerics == "invariant" else config.tp, context.rank, config.tp)
    collectives = _collectives(context, model_config)
    kv_cache = _kv_cache(context, model_config, sharding)
    shard_vocab = sharding.per_shard(model_config.vocab_size)
    program = StepProgram(
        model=_model(folder, context, model_config, sharding, collectives.reduce),
        kv_cache=kv_cache,
        collectives=collectives,
        sites=context.sites,
        mirror=context.mirror,
        attention=attention(config.attention),
        vocab_size=model_config.vocab_size,
        own_vocab=range(sharding.own.start * shard_vocab, sharding.own.stop * shard_vocab),
    )
    buffers, eager = (
        ContractBuffers.allocate(
            lanes=config.rows,
            blocks=config.max_blocks,
            vocab=sharding.padded(model_config.vocab_size),
            device=context.device.torch_device,
        )
        for _ in range(2)
    )
    return RankParts(program, buffers, eager.outputs, kv_cache, collectives, model_config.vocab_size)


def _model(
    folder: Path,
    context: RankContext,
    model_config: DecoderConfig,
    sharding: Sharding,
    reduce: Callable[[torch.Tensor, str], torch.Tensor],
) -> DecoderModel:
    config, device = context.config, context.device.torch_device
    with Checkpoint(folder, model_config) as checkpoint:
        weights = checkpoint.load(sharding, DTYPES[config.dtype], device, context.journal.unit)
    rotary = RotaryEmbedding(
        model_config.head_dim, model_config.rope_theta, model_config.rope_scaling, config.context, device
    )
    return DecoderModel(model_config, weights, sharding, rotary, reduce, context.hooks)


def _kv_cache(context: RankContext, model_config: DecoderConfig, sharding: Sharding) -> KVCache:
    config = context.config
    return KV_LAYOUTS[config.kv](
        num_layers=model_config.num_layers,
        num_shards=len(sharding.own),
        num_pages=config.num_pages,
        page_size=config.page_size,
        kv_heads=sharding.per_shard(model_config.num_kv_heads),
        head_dim=model_config.head_dim,
        dtype=DTYPES[config.dtype if config.kv_dtype == "auto" else config.kv_dtype],
        device=context.device.torch_device,
    )


def _collectives(context: RankContext, model_config: DecoderConfig) -> Collectives:
    config = context.config
    if config.tp == 1:
        return SingleRank(context.hooks)
    return StagedCollectives(
        rank=context.rank,
        tp=config.tp,
        fixed_tree=config.numerics == "invariant",
        backend=context.backend,
        transport=_transport(context, model_config),
        sites=context.sites,
        hooks=context.hooks,
    )


def _transport(context: RankContext, model_config: DecoderConfig) -> Transport:
    config = context.config
    if config.allreduce == "gloo":
        return GlooTransport(Rendezvous(context.journal, config.tp), context.journal)
    if config.allreduce == "nccl":
        return NcclTransport()
    # Only here: a torch for CPUs cannot import it everywhere.
    from graphcheck.engine.symmetric import SymmetricTransport

    hidden = max(config.rows, config.context) * model_config.hidden_size
    logits = config.rows * -(-model_config.vocab_size // NUM_VIRTUAL_SHARDS) * NUM_VIRTUAL_SHARDS
    return SymmetricTransport(context.device.torch_device, numel=max(hidden, logits))
