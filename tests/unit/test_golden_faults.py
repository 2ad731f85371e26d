"""Every way in which a golden can be wrong ends a run with exit 6 and one line, and never as drift."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from graphcheck.harness.files.golden_store import read_golden, write_golden
from graphcheck.harness.files.matrix_file import load_matrix
from graphcheck.harness.golden.check import check_goldens
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.verdicts import Verdict
from tests.failing_disk import make_unreadable
from tests.fake_world import FakeWorld

GOLDEN = Path("golden/toy/trio.jsonl")


def rewrite(change: Callable[[bytes], bytes]) -> Callable[[], None]:
    def plant() -> None:
        GOLDEN.write_bytes(change(GOLDEN.read_bytes()))

    return plant


def swap_lines(content: bytes) -> bytes:
    first, second, *rest = content.split(b"\n")[1:]
    return b"\n".join([content.split(b"\n")[0], second, first, *rest])


def rehashed(content: bytes) -> bytes:
    line, body = content.split(b"\n", 1)
    fields = json.loads(line) | {"body_sha": hashlib.sha256(body).hexdigest()}
    return json.dumps(fields).encode() + b"\n" + body


def golden_of_another(**header: object) -> Callable[[], None]:
    """A whole, valid golden that was made for something else and lies under this one's name."""

    def plant() -> None:
        golden = read_golden(GOLDEN)
        fields = golden.header.model_dump(exclude={"format", "num_prompts", "body_sha"})
        write_golden(GOLDEN, fields | header, golden.prompts)

    return plant


def change_the_model() -> None:
    (Path("toy") / "model.safetensors").write_bytes(b"other weights that nobody loads")


def change_the_suite() -> None:
    suite = Path("suites/trio.toml")
    suite.write_text(suite.read_text().replace("max_new_tokens = 12", "max_new_tokens = 11"))


def cut_after_a_line(content: bytes) -> bytes:
    return content[: content.rindex(b"\n", 0, -1) + 1]


def conflicting(content: bytes) -> bytes:
    return b"<<<<<<< ours\n" + content + b"=======\n>>>>>>> theirs\n"


def replaced(old: bytes, new: bytes) -> Callable[[], None]:
    return rewrite(lambda content: content.replace(old, new, 1))


OTHER_MODEL = {"config": "0", "weights": "0"}
FAULTS: dict[str, tuple[Callable[[], None], str]] = {
    "a token edited": (replaced(b'"ids":[', b'"ids":[1,'), "body sha256"),
    "cut in a line": (rewrite(lambda content: content[:-9]), "cut off"),
    "cut after a line": (rewrite(cut_after_a_line), "2 prompts: line 1 says 3"),
    "empty": (rewrite(lambda content: b""), "cut off"),
    "two lines swapped": (rewrite(swap_lines), "body sha256"),
    "two lines swapped, hash too": (rewrite(lambda content: rehashed(swap_lines(content))), "in its order"),
    "swapped with another suite's": (golden_of_another(suite="duo", suite_sha="0" * 64), "suite_sha differ"),
    "swapped with another model's": (golden_of_another(model=OTHER_MODEL), "model.config, model.weights differ"),
    "swapped with another dtype's": (golden_of_another(dtype="bfloat16"), "dtype differ"),
    "of a later version": (replaced(b'"format":2', b'"format":3'), "format 3: this version reads"),
    "for other weights": (change_the_model, "model.weights differ"),
    "for another suite": (change_the_suite, "suite_sha differ"),
    "CR LF": (rewrite(lambda content: content.replace(b"\n", b"\r\n")), "CR LF line ends"),
    "conflict markers": (rewrite(conflicting), "merge conflict"),
    "unreadable": (lambda: make_unreadable(GOLDEN), "cannot be read (Input/output error)"),
    "gone": (GOLDEN.unlink, "not in golden"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_golden_is_exit_6_and_one_line(fake_world: FakeWorld, fault: str) -> None:
    matrix = fake_world.matrix(graph=["off"])
    assert fake_world.run(matrix)[1] is ExitCode.PASS
    plant, says = FAULTS[fault]
    plant()
    run, code = fake_world.run(matrix, run_dir=Path("again"))
    assert code is ExitCode.GOLDEN
    [attempt] = run.attempts
    assert attempt.finished is not None
    assert attempt.finished.verdict is (Verdict.MISSING if fault == "gone" else Verdict.STALE)
    assert says in attempt.finished.reason
    assert "\n" not in attempt.finished.reason
    ours = [line for line in check_goldens(None, [load_matrix(str(matrix))]).problems if "toy" in line]
    assert ours == [attempt.finished.reason]
