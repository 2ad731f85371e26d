"""Owns the engine's settings: what may be set, to what, and the frozen configuration that results."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from graphcheck.engine.errors import ConfigError
from graphcheck.engine.fixes import FIX_NAMES


@dataclass(frozen=True)
class Setting:
    """One engine setting. `choices` closes the set of values; `minimum` bounds an integer."""

    name: str
    default: int | str
    help: str
    choices: tuple[int | str, ...] | None = None
    minimum: int = 0


SETTINGS: tuple[Setting, ...] = (
    Setting("tp", 1, "tensor-parallel ranks", choices=(1, 2, 4)),
    Setting("graph", "off", "replay captured graphs in decode (opt-in)", choices=("off", "on")),
    Setting("device", "cpu", "where the ranks compute; graphs are tapes on a CPU", choices=("cpu", "cuda")),
    Setting("dtype", "float32", "dtype of weights and activations", choices=("float32", "bfloat16", "float16")),
    Setting("numerics", "invariant", "bits that do not depend on tp, or ordinary shards", ("invariant", "fast")),
    Setting("allreduce", "gloo", "transport of the collectives", choices=("gloo", "nccl", "symm")),
    Setting("share_gpus", "off", "ranks that outnumber the GPUs take turns on them", choices=("off", "on")),
    Setting("attention", "gather", "decode attention: torch ops on gathered pages, or a kernel", ("gather", "triton")),
    Setting("kv", "paged", "layout of the KV cache", choices=("paged", "static")),
    Setting("kv_dtype", "auto", "dtype of the KV cache; auto is the model's", choices=("auto", "bfloat16")),
    Setting("shapes", "padded", "eager decode pads to the buckets too, or runs the exact batch", ("padded", "exact")),
    Setting("lanes", 8, "sequences decoded at once", minimum=1),
    Setting("page_size", 16, "tokens a KV page (paged)", minimum=1),
    Setting("context", 128, "longest sequence in tokens, prompt and answer together", minimum=2),
    Setting("num_pages", 0, "KV pages to share (paged); 0 is enough for every lane at full context"),
    Setting("buckets", "1,2,4,8", "padded decode batch sizes, ascending; a larger batch runs eager"),
    Setting("audit", "off", "check the replay contract around every replay, and capture twice", ("off", "on")),
    Setting(
        "consensus", "off", "ranks compare the tokens of each step: different ones are an error, no hang", ("off", "on")
    ),
    Setting("breadcrumbs", "on", "steps write into host memory how far they have come", choices=("off", "on")),
    Setting(
        "logits",
        "off",
        "step events get the sha256 of each row of logits (`digest`; with an audit anyway), or its best ids (`top`)",
        ("off", "digest", "top"),
    ),
)


def defaults() -> dict[str, int | str]:
    """Every setting with its default."""
    return {setting.name: setting.default for setting in SETTINGS}


def parse_buckets(text: str) -> tuple[int, ...]:
    """`"1,2,4,8"` -> (1, 2, 4, 8).

    Raises:
        ConfigError: not ascending positive numbers.
    """
    try:
        buckets = tuple(int(part) for part in text.split(","))
    except ValueError:
        buckets = ()
    if not buckets or buckets[0] < 1 or list(buckets) != sorted(set(buckets)):
        raise ConfigError(f"buckets = {text!r}: ascending positive numbers joined by commas; write it like 1,2,4,8")
    return buckets


@dataclass(frozen=True)
class EngineConfig:
    """What a rank runs with; but for `delays` the same on every rank of an attempt."""

    tp: int
    graph: bool
    device: str
    dtype: str
    numerics: str
    allreduce: str
    share_gpus: bool
    attention: str
    kv: str
    kv_dtype: str
    exact_shapes: bool
    lanes: int
    page_size: int
    context: int
    num_pages: int
    buckets: tuple[int, ...]
    audit: bool
    consensus: bool
    breadcrumbs: bool
    logits_digest: bool
    logits_top: bool
    fixes_off: frozenset[str] = field(default_factory=frozenset)
    delays: Mapping[str, float] = field(default_factory=dict)
    """Site -> seconds by which this rank is late there."""

    @property
    def rows(self) -> int:
        """Rows of the decode buffers: enough for every lane and for the largest bucket."""
        return max(self.lanes, self.buckets[-1])

    def bucket_for(self, rows: int) -> int | None:
        """The smallest bucket that holds a decode batch of `rows` lanes, or None if none does."""
        return next((bucket for bucket in self.buckets if bucket >= rows), None)

    @property
    def max_blocks(self) -> int:
        """Columns of a block table: pages of one sequence at full context."""
        return self.context // self.page_size

    @classmethod
    def from_settings(
        cls, settings: Mapping[str, int | str], fixes_off: frozenset[str], delays: Mapping[str, float] | None = None
    ) -> "EngineConfig":
        """Checks settings that hang together; single values are checked against SETTINGS by the caller.

        Raises:
            ConfigError: a fix that does not exist, or settings that contradict each other.
        """
        unknown = fixes_off - set(FIX_NAMES)
        if unknown:
            raise ConfigError(f"fix {min(unknown)!r}: no such fix; choose one of {', '.join(FIX_NAMES)}")
        values = defaults() | dict(settings)
        lanes, page_size, context = int(values["lanes"]), int(values["page_size"]), int(values["context"])
        num_pages = int(values["num_pages"]) or lanes * context // page_size
        if values["kv"] == "static":
            page_size, num_pages = context, lanes
        if context % page_size:
            raise ConfigError(
                f"context = {context}, page_size = {page_size}: the context is a whole number of pages; "
                f"try context = {-(-context // page_size) * page_size}"
            )
        _check_device(values)
        return cls(
            tp=int(values["tp"]),
            graph=values["graph"] == "on",
            device=str(values["device"]),
            dtype=str(values["dtype"]),
            numerics=str(values["numerics"]),
            allreduce=str(values["allreduce"]),
            share_gpus=values["share_gpus"] == "on",
            attention=str(values["attention"]),
            kv=str(values["kv"]),
            kv_dtype=str(values["kv_dtype"]),
            exact_shapes=values["shapes"] == "exact",
            lanes=lanes,
            page_size=page_size,
            context=context,
            num_pages=num_pages,
            buckets=_needed(parse_buckets(str(values["buckets"])), lanes),
            audit=values["audit"] == "on",
            consensus=values["consensus"] == "on",
            breadcrumbs=values["breadcrumbs"] == "on",
            logits_digest=values["logits"] == "digest" or values["audit"] == "on",
            logits_top=values["logits"] == "top",
            fixes_off=fixes_off,
            delays=dict(delays or {}),
        )


def _check_device(values: Mapping[str, int | str]) -> None:
    """Settings that only one kind of device can serve."""
    allreduce = values["allreduce"]
    if values["device"] == "cuda":
        if allreduce == "gloo" and int(values["tp"]) > 1:
            raise ConfigError("allreduce = gloo, device = cuda: a CUDA graph cannot hold gloo; use allreduce = nccl")
        if allreduce == "nccl" and values["share_gpus"] == "on":
            raise ConfigError("allreduce = nccl, share_gpus = on: NCCL wants a GPU a rank; use allreduce = symm")
        return
    if allreduce != "gloo":
        raise ConfigError(
            f"allreduce = {allreduce}, device = cpu: it moves GPU memory only; use gloo, or device = cuda"
        )
    if values["attention"] == "triton":
        raise ConfigError("attention = triton, device = cpu: the kernel needs a GPU; use gather, or device = cuda")


def _needed(buckets: tuple[int, ...], lanes: int) -> tuple[int, ...]:
    """The buckets up to the first that holds every lane; those behind it would never be used."""
    return buckets[: sum(bucket < lanes for bucket in buckets) + 1]
