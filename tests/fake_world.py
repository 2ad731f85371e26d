"""Owns a small world for whole runs on the fake target: a model folder, a suite, its golden, matrices on demand."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphcheck.harness.files.golden_store import write_golden
from graphcheck.harness.files.model_folder import open_model
from graphcheck.harness.files.suite_file import load_suite
from graphcheck.harness.planning.request import RunRequest
from graphcheck.harness.records.run_folder import Run, load_run
from graphcheck.harness.running.execute import Surroundings
from graphcheck.harness.running.run_matrix import run_matrix
from graphcheck.harness.running.supervise import Clock
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.golden import GoldenPrompt, GoldenStep
from graphcheck.targets.fake import FakeTarget

VOCAB_SIZE = 97
CONFIG = {"vocab_size": VOCAB_SIZE, "max_position_embeddings": 64, "num_hidden_layers": 2}
PROMPTS = {"one": ((3, 14, 15), 12), "two": ((92, 65), 9), "three": ((35, 89, 79, 32), 5)}
"""Prompt id -> prompt ids, number of new tokens."""


def right_answer(prompt_ids: tuple[int, ...], num_tokens: int) -> tuple[int, ...]:
    """The fake target's rule written out a second time, so that the golden does not come from the code under test."""
    ids = list(prompt_ids)
    for _ in range(num_tokens):
        ids.append((7 * ids[-1] + 3 * len(ids) + ids[0]) % VOCAB_SIZE)
    return tuple(ids[len(prompt_ids) :])


@dataclass
class VirtualClock:
    """Time that passes only while somebody sleeps."""

    seconds: float = 0.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass(frozen=True)
class FakeWorld:
    """A folder that holds everything that a run on the fake target needs."""

    path: Path
    clock: VirtualClock = field(default_factory=VirtualClock)

    @property
    def golden_dir(self) -> Path:
        return self.path / "golden"

    @property
    def golden_file(self) -> Path:
        return self.golden_dir / "toy" / "trio.jsonl"

    def matrix(
        self, settings: dict[str, object] | None = None, expect_fallback: Sequence[str] = (), **axes: Sequence[object]
    ) -> Path:
        """Writes m.toml with these axes."""
        lines = ['target = "fake"', 'models = ["toy"]', 'suites = ["trio"]', "[axes]"]
        lines += [f"{axis} = {json.dumps(values)}" for axis, values in axes.items()]
        lines += ["[settings]", *(f"{name} = {json.dumps(value)}" for name, value in (settings or {}).items())]
        lines += ["[policy]", f"expect_fallback = {json.dumps(expect_fallback)}"]
        path = self.path / "m.toml"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    def surroundings(self, num_devices: int = 0, *, gives_forced: bool = False) -> Surroundings:
        """The fake target, as many devices, and time that passes only while somebody sleeps."""
        return Surroundings(
            load_target=lambda name: FakeTarget(self.clock.sleep, gives_forced=gives_forced),
            count_devices=lambda kind: num_devices,
            clock=Clock(self.clock.now, self.clock.sleep),
            device_memory=lambda: None,
        )

    def run(
        self, matrix: Path, num_devices: int = 0, *, gives_forced: bool = False, **request: Any
    ) -> tuple[Run, ExitCode]:
        """Runs a matrix in virtual time; `request` are fields of RunRequest."""
        surroundings = self.surroundings(num_devices, gives_forced=gives_forced)
        result = run_matrix(RunRequest(matrix=str(matrix), **request), surroundings=surroundings)
        return load_run(result.path), result.exit_code


def make_world(path: Path) -> FakeWorld:
    """Fills an empty folder."""
    model = path / "toy"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    (model / "model.safetensors").write_bytes(b"weights that nobody loads")
    suite = path / "suites" / "trio.toml"
    suite.parent.mkdir()
    prompts = (
        f'[[prompts]]\nid = "{prompt}"\nids = {list(ids)}\nmax_new_tokens = {count}\n'
        for prompt, (ids, count) in PROMPTS.items()
    )
    suite.write_text('name = "trio"\n' + "".join(prompts), encoding="utf-8")
    world = FakeWorld(path)
    write_golden_of(world)
    return world


def write_golden_of(world: FakeWorld, spoil: Callable[[str, tuple[int, ...]], tuple[int, ...]] | None = None) -> None:
    """The golden that a reference with the rule would make; `spoil` may change the answer of a prompt."""
    prompts = []
    for prompt, (ids, count) in PROMPTS.items():
        answer = right_answer(ids, count)
        answer = spoil(prompt, answer) if spoil else answer
        steps = tuple(GoldenStep(top=((token, 4.0), ((token + 1) % VOCAB_SIZE, 1.5))) for token in answer)
        prompts.append(GoldenPrompt(id=prompt, prompt_ids=ids, ids=answer, text="", finish="length", steps=steps))
    header = {
        "model_name": "toy",
        "model": open_model(world.path / "toy").fingerprint(),
        "suite": "trio",
        "suite_sha": load_suite("trio", world.path / "m.toml").sha,
        "dtype": "float32",
        "reference": "the rule",
        "versions": {},
        "made_on": "2000-01-01",
        "command": "by hand",
    }
    write_golden(world.golden_file, header, prompts)
