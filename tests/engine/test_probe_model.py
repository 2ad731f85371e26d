"""Owns the proof that the shipped probe is an instrument: right on its tasks, and wrong as soon as its KV cache is.

Drives transformers' own Llama over a cache that a test damages between prefill and decode; no engine takes part.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import DynamicCache, LlamaForCausalLM

from graphcheck.harness.files.matrix_file import load_matrix
from graphcheck.harness.files.suite_file import load_suite
from graphcheck.models.probe_admission import evaluate
from graphcheck.models.probe_tasks import EOS, TASKS, answer
from graphcheck.models.probe_train import Recipe, make
from graphcheck.shipped import models_dir

# Renamed in transformers 5.24, where the old name still works; the new one does not exist before.
pytestmark = pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning")

FOLDER = models_dir() / "probe"
MATRIX = load_matrix("default")
PAGE_SIZE = int(MATRIX.matrix.settings["page_size"])
TOKENIZER = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
TEXTS = {
    prompt.id: str(prompt.text)
    for suite in ("twelve", "tasks")
    for prompt in load_suite(suite, MATRIX.path).suite.prompts
}
EVERY_PROMPT = pytest.mark.parametrize("prompt", TEXTS)


@dataclass(frozen=True)
class Fault:
    """What is wrong in every decode step: the cache, the newest slot hidden, or one position for all tokens."""

    damage: Callable[[DynamicCache], None] = lambda cache: None
    hides_own_slot: bool = False
    position: int | None = None


@pytest.fixture(scope="module")
def probe() -> LlamaForCausalLM:
    return LlamaForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()


@torch.no_grad()
def prefill(model: LlamaForCausalLM, text: str) -> tuple[DynamicCache, int]:
    """The KV cache of a prompt, and the first token of its answer."""
    cache = DynamicCache(config=model.config)
    logits = model(input_ids=torch.tensor([TOKENIZER.encode(text).ids]), past_key_values=cache).logits
    return cache, int(logits[0, -1].argmax())


@torch.no_grad()
def decode(model: LlamaForCausalLM, text: str, fault: Fault) -> list[str]:
    """Greedy answer in words, as long as the right one at most; the fault begins after prefill."""
    cache, token = prefill(model, text)
    fault.damage(cache)
    ids = [token]
    while len(ids) < len(answer(text).split()) and ids[-1] != model.config.eos_token_id:
        num_slots = cache.get_seq_length() + 1
        visible = torch.ones(1, 1, 1, num_slots, dtype=torch.bool)
        visible[..., -1] = not fault.hides_own_slot
        position = num_slots - 1 if fault.position is None else fault.position
        logits = model(
            input_ids=torch.tensor([[ids[-1]]]),
            attention_mask=visible,
            position_ids=torch.tensor([[position]]),
            past_key_values=cache,
        ).logits
        ids.append(int(logits[0, -1].argmax()))
    return [TOKENIZER.id_to_token(number) for number in ids]


def first_wrong(model: LlamaForCausalLM, text: str, fault: Fault) -> int | None:
    """Index of the first token that differs from the right answer; 0 is the one that prefill gives."""
    right = answer(text).split()
    said = decode(model, text, fault)
    return next((i for i, (got, want) in enumerate(zip(said, right, strict=False)) if got != want), None)


def slots_to_copy(text: str) -> list[int]:
    """Slots of the items that the answer repeats after its first one; of `count`, the item that it must end with."""
    words, items = text.split(), answer(text).split()[:-1]
    if words[0] == "count":
        return [len(words)]
    in_order = items[::-1] if words[0] == "reverse" else items
    begin = 1 + next(i for i in range(len(words)) if words[i : i + len(items)] == in_order)
    said_first = begin + len(items) - 1 if words[0] == "reverse" else begin
    return [slot for slot in range(begin, begin + len(items)) if slot != said_first]


def zero(slot: int) -> Callable[[DynamicCache], None]:
    """Zeroes the keys and values of one slot in every layer."""

    def damage(cache: DynamicCache) -> None:
        for layer in cache.layers:
            layer.keys[:, :, slot] = 0
            layer.values[:, :, slot] = 0

    return damage


def swap_page(number: int, other: DynamicCache) -> Callable[[DynamicCache], None]:
    """Exchanges page `number` of a sequence with the same page of `other`.

    Keys carry their rotary position, so two full pages of one sequence may trade places unnoticed; what a wrong
    block-table entry brings in is another sequence's page.
    """
    slots = slice(number * PAGE_SIZE, (number + 1) * PAGE_SIZE)

    def damage(cache: DynamicCache) -> None:
        for mine, theirs in zip(cache.layers, other.layers, strict=True):
            for here, there in ((mine.keys, theirs.keys), (mine.values, theirs.values)):
                kept = here[:, :, slots].clone()
                here[:, :, slots] = there[:, :, slots]
                there[:, :, slots] = kept

    return damage


@EVERY_PROMPT
def test_probe_is_right_on_a_sound_cache(probe: LlamaForCausalLM, prompt: str) -> None:
    assert decode(probe, TEXTS[prompt], Fault()) == answer(TEXTS[prompt]).split()


@EVERY_PROMPT
def test_zeroed_slot_of_an_item_to_come_changes_the_answer(probe: LlamaForCausalLM, prompt: str) -> None:
    """An item between two others: one that stands twice in a row is still told by its twin's slot."""
    text = TEXTS[prompt]
    words = ["<bos>", *text.split(), "the answer"]
    needed = [slot for slot in slots_to_copy(text) if words[slot] not in (words[slot - 1], words[slot + 1])]
    assert first_wrong(probe, text, Fault(damage=zero(needed[len(needed) // 2]))) is not None


@EVERY_PROMPT
def test_length_one_short_changes_the_answer_at_once(probe: LlamaForCausalLM, prompt: str) -> None:
    assert first_wrong(probe, TEXTS[prompt], Fault(hides_own_slot=True)) == 1


@EVERY_PROMPT
def test_frozen_position_changes_one_of_the_first_three_decoded_tokens(probe: LlamaForCausalLM, prompt: str) -> None:
    first_decoded = len(TOKENIZER.encode(TEXTS[prompt]).ids)
    assert first_wrong(probe, TEXTS[prompt], Fault(position=first_decoded)) in (1, 2, 3)


SWAPS = [
    (prompt, page)
    for prompt, text in TEXTS.items()
    for page in sorted({slot // PAGE_SIZE for slot in slots_to_copy(text)})
    if (page + 1) * PAGE_SIZE <= len(TOKENIZER.encode(text).ids)
]


@pytest.mark.parametrize(("prompt", "page"), SWAPS)
def test_swapped_page_with_items_to_come_changes_the_answer(probe: LlamaForCausalLM, prompt: str, page: int) -> None:
    longest_other = max((text for name, text in TEXTS.items() if name != prompt), key=len)
    other, _ = prefill(probe, longest_other)
    assert first_wrong(probe, TEXTS[prompt], Fault(damage=swap_page(page, other))) is not None


@pytest.mark.parametrize("number", range(3))
def test_each_layer_is_needed_by_some_prompt_of_twelve(
    probe: LlamaForCausalLM, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A layer that decode could skip unnoticed would hide every fault that is confined to it."""
    layer = probe.model.layers[number]

    def skip(cache: DynamicCache) -> None:
        def passed_on(hidden_states: torch.Tensor, **kwargs: object) -> torch.Tensor:
            # The cache must still grow by a slot, or the next token's mask would not fit.
            keys = cache.layers[number].keys
            cache.update(torch.zeros_like(keys[:, :, :1]), torch.zeros_like(keys[:, :, :1]), number)
            return hidden_states

        monkeypatch.setattr(layer, "forward", passed_on)

    assert len(probe.model.layers) == 3
    wrong = []
    for prompt in load_suite("twelve", MATRIX.path).suite.prompts:
        with monkeypatch.context():
            wrong.append(first_wrong(probe, str(prompt.text), Fault(damage=skip)) is not None)
        monkeypatch.undo()
    assert any(wrong)


def test_damage_where_nothing_is_needed_changes_nothing(probe: LlamaForCausalLM) -> None:
    text = "recall A ba be bi bo ; B du fe gi ho ; ? A"
    unneeded = 1 + text.split().index("gi")
    assert first_wrong(probe, text, Fault(damage=zero(unneeded))) is None


def test_prompts_drawn_afresh_are_answered_right_with_wide_margins(probe: LlamaForCausalLM) -> None:
    for score in evaluate(probe, num_prompts=64, most_tokens=128).values():
        assert score.accuracy == 1.0
        assert score.min_margin > 1.0


def test_tasks_of_the_suites_are_admitted() -> None:
    admission = json.loads((FOLDER / "admission.json").read_text())
    assert {text.split()[0] for text in TEXTS.values()} == set(admission["admitted"]) == set(TASKS)


def test_untrained_model_is_made_loadable_and_none_of_its_tasks_is_admitted(tmp_path: Path) -> None:
    admission = make(tmp_path, Recipe(num_steps=2, batch_size=2, num_held_out=4))
    assert admission == json.loads((tmp_path / "admission.json").read_text())
    assert admission["left_out"] == list(TASKS)
    assert admission["admitted"] == []
    made = LlamaForCausalLM.from_pretrained(tmp_path)
    assert made.config.num_key_value_heads >= 4
    encoded = Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("copy ba be bi ; copy").ids
    assert encoded == TOKENIZER.encode("copy ba be bi ; copy").ids
    assert encoded[0] == made.config.bos_token_id
    assert TOKENIZER.token_to_id(EOS) == made.config.eos_token_id


def test_same_recipe_same_weights(tmp_path: Path) -> None:
    recipe = Recipe(num_steps=2, batch_size=2, num_held_out=1)
    for name in ("first", "again"):
        make(tmp_path / name, recipe)
    first, again = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("first", "again"))
    assert first == again
