"""Runs a random-weight Llama of 8B parameters in bfloat16 on GPUs, and compares its cells with each other and every
step with transformers, which is fed the same tokens.

    python benchmarks/random_8b.py [--tp 1 2] [--layers 32] [--folder DIR]

Random weights are sure of nothing: a free run need not equal transformers'. Cells must equal each other bit for bit,
and where transformers would pick another token, that token must be a near tie. The checkpoint (16 GB) is made in DIR,
/dev/shm unless said otherwise, and removed again.
"""

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from graphcheck.harness.running.limits import Limits
from graphcheck.harness.running.supervise import supervise
from graphcheck.schema.attempt import Attempt, Cell
from graphcheck.schema.base import AxisValue
from graphcheck.schema.events import Event, StepEvent
from graphcheck.schema.run import AttemptFacts
from graphcheck.schema.suite import Request, Workload
from graphcheck.targets.base import Launch
from graphcheck.targets.bundled.target import BundledTarget

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
STD = 0.02
SETTINGS: dict[str, AxisValue] = {
    "dtype": "bfloat16",
    "lanes": 8,
    "context": 128,
    "attention": "triton",
    "logits": "digest",
}
MODEL, STEPS = "model", "steps.json"

CHILD = "--child"
"""Runs one of the parts that touch a GPU: the parent must not, since it forks nothing and frees nothing."""


def write_checkpoint(folder: Path, layers: int, device: str) -> None:
    """Weights drawn on the device from one seed, a file a layer."""
    import torch
    from safetensors.torch import save_file

    generator = torch.Generator(device).manual_seed(0)
    hidden, ffn, vocab = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["vocab_size"]
    kv = CONFIG["num_key_value_heads"] * CONFIG["head_dim"]

    def drawn(*shape: int) -> torch.Tensor:
        weight = torch.empty(shape, dtype=torch.bfloat16, device=device)
        return weight.normal_(0.0, STD, generator=generator).cpu()

    def ones() -> torch.Tensor:
        return torch.ones(hidden, dtype=torch.bfloat16)

    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": layers}))
    where: dict[str, str] = {}
    for layer in range(layers):
        name = f"model.layers.{layer}"
        tensors = {
            f"{name}.self_attn.q_proj.weight": drawn(hidden, hidden),
            f"{name}.self_attn.k_proj.weight": drawn(kv, hidden),
            f"{name}.self_attn.v_proj.weight": drawn(kv, hidden),
            f"{name}.self_attn.o_proj.weight": drawn(hidden, hidden),
            f"{name}.mlp.gate_proj.weight": drawn(ffn, hidden),
            f"{name}.mlp.up_proj.weight": drawn(ffn, hidden),
            f"{name}.mlp.down_proj.weight": drawn(hidden, ffn),
            f"{name}.input_layernorm.weight": ones(),
            f"{name}.post_attention_layernorm.weight": ones(),
        }
        _save(folder, f"layer-{layer:02}.safetensors", tensors, where, save_file)
    ends = {
        "model.embed_tokens.weight": drawn(vocab, hidden),
        "model.norm.weight": ones(),
        "lm_head.weight": drawn(vocab, hidden),
    }
    _save(folder, "ends.safetensors", ends, where, save_file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))


def _save(folder: Path, name: str, tensors: dict[str, Any], where: dict[str, str], save_file: Any) -> None:
    save_file(tensors, folder / name, metadata={"format": "pt"})
    where.update(dict.fromkeys(tensors, name))


def workload() -> Workload:
    """Eight prompts of random ids, two of them late, 24 tokens each and no stop id."""
    draw = random.Random(0)
    requests = (
        Request(
            id=f"r{number}",
            prompt_ids=tuple(draw.randrange(3, CONFIG["vocab_size"]) for _ in range(draw.randrange(8, 65))),
            arrival=number // 6 * 5,
            max_new_tokens=24,
        )
        for number in range(8)
    )
    return Workload(suite="random", requests=tuple(requests))


def run_cell(
    target: BundledTarget, model: Path, out: Path, settings: dict[str, AxisValue]
) -> tuple[AttemptFacts, list[StepEvent]]:
    """One cell in rank processes, supervised."""
    events: list[Event] = []
    out.mkdir(parents=True)
    defaults = {axis.name: axis.default for axis in target.describe().axes if axis.default is not None}
    attempt = Attempt(cell=Cell(axes={"tp": settings["tp"], "graph": settings["graph"]}))
    launch = Launch(attempt=attempt, model_dir=model, settings=defaults | settings)
    facts = supervise(target.start(launch, workload(), out), Limits.for_device("cuda"), events.append)
    return facts, [event for event in events if isinstance(event, StepEvent)]


def rows(steps: list[StepEvent], rank: int) -> dict[tuple[str, int], tuple[int, str]]:
    """(request, output index) -> token and sha256 of its logits, of one rank."""
    return {
        (request, index): (token, sha)
        for step in steps
        if step.rank == rank
        for request, index, token, sha in zip(step.requests, step.index, step.ids, step.logits_sha or (), strict=True)
    }


def compare_with_transformers(folder: Path, device: str) -> dict[str, Any]:
    """Every step of transformers on the same tokens, in bfloat16 and in float32.

    Where two of the three would pick different tokens: by how many units in the last place of bfloat16 the one's pick
    lies behind the other's best logit. What bfloat16 costs transformers itself is the measure for the engine.
    """
    import torch
    from transformers import AutoModelForCausalLM

    answers: dict[str, list[int]] = json.loads((folder / STEPS).read_text())
    logits: dict[str, torch.Tensor] = {}
    for name, dtype in (("bfloat16", torch.bfloat16), ("float32", torch.float32)):
        model: Any = AutoModelForCausalLM.from_pretrained(folder / MODEL, dtype=dtype)
        model = model.to(device)
        with torch.no_grad():
            rows = [
                model(torch.tensor([[*request.prompt_ids, *answers[request.id][:-1]]], device=device))
                .logits[0, len(request.prompt_ids) - 1 :]
                .float()
                for request in workload().requests
            ]
        logits[name] = torch.cat(rows)
        del model
    engine = torch.tensor([token for request in workload().requests for token in answers[request.id]], device=device)
    picks = {"engine": engine} | {f"transformers_{name}": row.argmax(-1) for name, row in logits.items()}
    return {
        "steps": len(engine),
        "engine_behind_transformers_bfloat16": behind(logits["bfloat16"], picks["engine"]),
        "engine_behind_transformers_float32": behind(logits["float32"], picks["engine"]),
        "transformers_bfloat16_behind_its_float32": behind(logits["float32"], picks["transformers_bfloat16"]),
    }


def behind(logits: Any, picks: Any) -> dict[str, int]:
    """Units in the last place of bfloat16 by which picks [steps] lie behind the best of logits [steps, vocab] -> steps.

    bfloat16 has 8 bits of precision: its unit in the last place at x is 2 ** (floor(log2 |x|) - 7).
    """
    best, picked = logits.max(-1).values, logits.gather(1, picks[:, None])[:, 0]
    units = ((best - picked) / 2 ** (best.abs().log2().floor() - 7)).round().int().tolist()
    return {str(count): steps for count, steps in sorted(Counter(units).items())}


def main() -> int:
    """Prints the figures as JSON; exit 1 if two cells differ in a bit."""
    parser = argparse.ArgumentParser(description="Run a random 8B Llama.")
    parser.add_argument("--tp", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"))
    parser.add_argument(CHILD, choices=["write", "compare"])
    arguments = parser.parse_args()
    if arguments.child == "write":
        write_checkpoint(arguments.folder / MODEL, arguments.layers, arguments.device)
        return 0
    if arguments.child == "compare":
        print(json.dumps(compare_with_transformers(arguments.folder, arguments.device)))
        return 0
    folder = Path(tempfile.mkdtemp(prefix="graphcheck-8b-", dir=arguments.folder))
    try:
        figures = measure(folder, arguments)
    finally:
        shutil.rmtree(folder)
    print(json.dumps(figures, indent=1))
    return 0 if figures["bit_identical"] else 1


def measure(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """All cells, and transformers beside the first."""

    def child(part: str) -> str:
        command = [sys.executable, __file__, CHILD, part, "--folder", str(folder), "--device", arguments.device]
        command += ["--layers", str(arguments.layers)]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

    child("write")
    versions: dict[tuple[str, int], set[str]] = defaultdict(set)
    cells: dict[str, Any] = {}
    on_gpu = arguments.device == "cuda"
    device: dict[str, AxisValue] = {"device": arguments.device, "allreduce": "nccl" if on_gpu else "gloo"}
    device |= {} if on_gpu else {"attention": "gather"}
    target = BundledTarget()
    try:
        for tp in arguments.tp:
            for graph in ("off", "on"):
                name = f"tp{tp}-graph_{graph}"
                settings = SETTINGS | device | {"tp": tp, "graph": graph}
                facts, steps = run_cell(target, folder / MODEL, folder / name, settings)
                if facts.errors or facts.stall is not None:
                    raise SystemExit(f"{name}: {facts.errors or facts.stall}")
                if not cells:
                    answers: dict[str, list[int]] = defaultdict(list)
                    for (request, _), (token, _) in sorted(rows(steps, 0).items()):
                        answers[request].append(token)
                    (folder / STEPS).write_text(json.dumps(answers))
                for rank in range(tp):
                    for row, (_, sha) in rows(steps, rank).items():
                        versions[row].add(sha)
                decode = [step.seconds for step in steps if step.phase == "decode" and step.seconds is not None]
                cells[name] = {
                    "decode_step_ms_median": round(1e3 * statistics.median(decode), 2),
                    "peak_memory_gib_per_rank": [
                        round((facts.evidence[rank].peak_memory_bytes or 0) / 2**30, 2) for rank in range(tp)
                    ],
                    "replays": facts.evidence[0].replays,
                    "load_seconds": round(facts.evidence[0].seconds.get("load", 0.0), 1),
                }
    finally:
        target.close()
    same = sum(len(shas) == 1 for shas in versions.values())
    return {
        "device": facts.evidence[0].backend.device_name,
        "layers": arguments.layers,
        "rows_of_logits": len(versions),
        "bit_identical_rows": same,
        "bit_identical": same == len(versions),
        "cells": cells,
        "transformers_on_the_same_tokens": json.loads(child("compare")),
    }


if __name__ == "__main__":
    sys.exit(main())
