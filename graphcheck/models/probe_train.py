"""Owns how the probe model is made: `python -m graphcheck.models.probe_train --out DIR` trains it from its tasks."""

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import LlamaConfig, LlamaForCausalLM

from graphcheck.models.probe_admission import encode, evaluate, record
from graphcheck.models.probe_faults import NOT_ASKED, Batch, hide_own_slots
from graphcheck.models.probe_tasks import BOS, EOS, PAD, TASKS, VOCABULARY, draw

LOG_EVERY = 100


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the weights, on one kind of device and with one torch version.

    The progress of the training goes from 0 to 1: lengths grow until `grown_at`, own slots are hidden from
    `faults_from` on, in `fault_share` of the sequences, and the learning rate falls from `falling_from` on.
    """

    seed: int = 2
    num_steps: int = 6000
    batch_size: int = 128
    learning_rate: float = 2e-3
    warm_up_steps: int = 100
    first_tokens: int = 20
    most_tokens: int = 128
    spread_tokens: int = 24
    full_share: float = 0.4
    grown_at: float = 0.4
    faults_from: float = 0.45
    falling_from: float = 0.5
    fault_share: float = 0.15
    num_held_out: int = 4096


def config() -> LlamaConfig:
    """A plain Llama: RMSNorm, default RoPE, SwiGLU, 8 query heads on 4 KV heads."""
    return LlamaConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=256,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        pad_token_id=VOCABULARY.index(PAD),
        bos_token_id=VOCABULARY.index(BOS),
        eos_token_id=VOCABULARY.index(EOS),
        dtype="float32",
        architectures=["LlamaForCausalLM"],
    )


def tokenizer() -> Tokenizer:
    """One token a word, <bos> put in front; a word that is not in the vocabulary is an error."""
    made = Tokenizer(WordLevel({word: number for number, word in enumerate(VOCABULARY)}))
    made.pre_tokenizer = WhitespaceSplit()
    made.post_processor = TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, VOCABULARY.index(BOS))])
    made.add_special_tokens([PAD, BOS, EOS])
    return made


def draw_batch(rng: Random, recipe: Recipe, num_tokens: int) -> Batch:
    """Sequences of all tasks that need between `num_tokens - spread_tokens` and `num_tokens` tokens."""
    tasks = [task for task in TASKS if TASKS[task].least <= num_tokens]
    pairs = []
    for _ in range(recipe.batch_size):
        task = rng.choice(tasks)
        least = max(TASKS[task].least, num_tokens - recipe.spread_tokens)
        pairs.append(encode(draw(task, rng, rng.randint(least, num_tokens))))
    # The last token of an answer is a target but never an input.
    width = max(len(prompt) + len(answer) for prompt, answer in pairs) - 1
    ids = torch.zeros(len(pairs), width, dtype=torch.long)
    targets = torch.full_like(ids, NOT_ASKED)
    for row, (prompt, answer) in enumerate(pairs):
        end = len(prompt) + len(answer) - 1
        ids[row, :end] = torch.tensor([*prompt, *answer[:-1]])
        targets[row, len(prompt) - 1 : end] = torch.tensor(answer)
    visible = torch.ones(width, width, dtype=torch.bool).tril().repeat(len(pairs), 1, 1, 1)
    return Batch(ids, targets, visible)


def loss_of(model: LlamaForCausalLM, batch: Batch) -> torch.Tensor:
    """Mean over sequences of their mean cross entropy, so that short answers weigh as much as long ones. Scalar."""
    logits = model(input_ids=batch.ids, attention_mask=batch.visible, use_cache=False).logits
    losses = F.cross_entropy(logits.transpose(1, 2), batch.targets, ignore_index=NOT_ASKED, reduction="none")
    return (losses.sum(1) / (batch.targets != NOT_ASKED).sum(1)).mean()


def train(recipe: Recipe, device: str) -> LlamaForCausalLM:
    """Trains in float32, one thread on the CPU's side, printing the mean loss; the model comes back on the CPU."""
    torch.set_num_threads(1)
    torch.manual_seed(recipe.seed)
    rng = Random(recipe.seed)
    model = LlamaForCausalLM(config())
    torch.nn.Module.to(model, device)  # transformers' own `to` hides its types
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    began, total = time.monotonic(), 0.0
    for step in range(recipe.num_steps):
        done = step / recipe.num_steps
        batch = draw_batch(rng, recipe, _length(rng, recipe, done))
        if done >= recipe.faults_from:
            hide_own_slots(batch, recipe.fault_share, rng)
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * _schedule(recipe, step, done)
        loss = loss_of(model, batch.to(device))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.item()
        if (step + 1) % LOG_EVERY == 0:
            print(f"step {step + 1}: loss {total / LOG_EVERY:.4f}, {time.monotonic() - began:.0f} s", flush=True)
            total = 0.0
    torch.nn.Module.to(model, "cpu")
    model.train(False)
    return model


def _length(rng: Random, recipe: Recipe, done: float) -> int:
    """Tokens of a batch's longest sequence: a bound that grows, in `full_share` of the batches, else anything below."""
    bound = recipe.first_tokens + (recipe.most_tokens - recipe.first_tokens) * min(1.0, done / recipe.grown_at)
    return round(bound if rng.random() < recipe.full_share else rng.uniform(recipe.first_tokens, bound))


def _schedule(recipe: Recipe, step: int, done: float) -> float:
    """Share of the learning rate: a linear warm-up, then flat, then a linear fall to zero."""
    return min(1.0, (step + 1) / recipe.warm_up_steps, (1 - done) / (1 - recipe.falling_from))


def make(out: Path, recipe: Recipe, device: str = "cpu") -> dict[str, object]:
    """Trains, evaluates, and writes a checkpoint folder with its admission record, which is returned."""
    out.mkdir(parents=True, exist_ok=True)
    model = train(recipe, device)
    admission = record(evaluate(model, recipe.num_held_out, recipe.most_tokens))
    model.config.save_pretrained(out)
    tokenizer().save(str(out / "tokenizer.json"))
    save_file(model.state_dict(), out / "model.safetensors", metadata={"format": "pt"})
    (out / "admission.json").write_text(json.dumps(admission, indent=2) + "\n")
    return admission


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Trains the probe model from its tasks alone.")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the checkpoint to")
    parser.add_argument("--device", default="cpu", help="torch device to train on (default: cpu)")
    arguments = parser.parse_args()
    admission = make(arguments.out, Recipe(), arguments.device)
    print(json.dumps(admission, indent=2))


if __name__ == "__main__":
    main()
