"""Makes the whole GPU record of a machine in one call: cells, ablations, the hang seen from inside, bits, sizes.

    python benchmarks/gpu_record.py OUT [--share-gpus] [--only NAME ...] [--within SECONDS]

The parts come in the order of their worth; `--within` starts none after so many seconds, and says which. TP sizes are
those that the machine has GPUs for, all of them with --share-gpus. Each part leaves OUT/NAME: the run's records and
console output, or the figures of a benchmark; OUT/record.json and OUT/README.md say what came of each, and whether that
was expected. Exit 1 if anything was not.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from graphcheck.harness.files.model_folder import find_model
from graphcheck.harness.machine.devices import count_devices
from graphcheck.schema.errors import DeviceError, ModelError
from graphcheck.schema.exit_codes import ExitCode

HERE = Path(__file__).parent
RUN = ("run.json", "cells.jsonl")
"""What is kept of a run folder; steps and logs stay behind."""


@dataclass(frozen=True)
class Part:
    """One command of the record. `run` is kept under the part's name if the command makes a run folder."""

    name: str
    what: str
    command: tuple[str, ...]
    expected: int = 0
    bits: bool = False

    @property
    def makes_run(self) -> bool:
        return self.command[0] in ("run", "ablate")


def parts(tp: list[int], own: list[int], share: bool) -> list[Part]:
    """Every part for these TP sizes, of which `own` have a GPU for each rank."""
    selected = () if len(tp) == 3 else ("-k", " or ".join(f"tp={size}" for size in tp))
    cells = (*selected, *(("--share-gpus",) if share else ()))
    digest = ("--set", "logits=digest", "--require-backend", "cuda")
    gpu = ("run", "matrix", "gpu", *cells)
    return [
        Part("six_cells", "the matrix in float32", (*gpu, *digest), bits=True),
        Part("bfloat16", "the same in bfloat16", ("run", "matrix", "gpu-bf16", *cells, *digest), bits=True),
        Part("ablation", "every fix off", ("ablate", "gpu", *cells, "--require-backend", "cuda")),
        *_hang(max(own)),
        Part("smollm2", "SmolLM2-135M, float32", ("run", "matrix", "gpu-smollm2", *digest), bits=True),
        Part("random_8b", "a random 8B Llama, bfloat16", ("random_8b.py", "--tp", *map(str, own))),
        Part("audit", "audit of the replay contract", (*gpu, "--audit")),
        Part("static_kv", "static KV", (*gpu, *digest, "--set", "kv=static"), bits=True),
        Part("symm", "symmetric memory in place of NCCL", (*gpu, *digest, "--set", "allreduce=symm"), bits=True),
        Part("fast", "ordinary shards, summed by an all-reduce", (*gpu, "--set", "numerics=fast")),
        Part("attention", "decode attention: kernel over torch ops", ("decode_attention.py",)),
        Part("breadcrumbs", "what breadcrumbs cost a step", ("breadcrumbs.py", "--repeats", "2", "gpu", "-k", "tp=1")),
    ]


def _hang(tp: int) -> list[Part]:
    """Over as many ranks as have a GPU each; one alone has nobody to wait for."""
    hang = ("-k", f"tp={tp} and graph=on", "--disable-fix", "allreduce-sync")
    what = "`allreduce-sync` off: the hang, seen from inside the replay"
    return [Part("hang", what, ("run", "matrix", "gpu", *hang), expected=ExitCode.HANG)] if tp > 1 else []


def make(part: Part, out: Path) -> dict[str, object]:
    """Runs one part; returns its line of the record."""
    folder = out / part.name
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        if part.makes_run:
            command = [sys.executable, "-m", "graphcheck", *part.command, "--run-dir", str(run)]
        else:
            command = [sys.executable, str(HERE / part.command[0]), *part.command[1:]]
        began = time.monotonic()
        # Figures are JSON: what else a benchmark says stays on this program's standard error.
        errors = subprocess.STDOUT if part.makes_run else None
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True, check=False)
        seconds = time.monotonic() - began
        clean = public(done.stdout, run)
        (folder / ("console.txt" if part.makes_run else "figures.json")).write_text(clean, encoding="utf-8")
        for name in RUN if part.makes_run else ():
            if (run / name).is_file():
                (folder / name).write_text(public((run / name).read_text(encoding="utf-8"), run), encoding="utf-8")
        bits = _bits(run) if part.bits else None
    words = "graphcheck" if part.makes_run else "python"
    prefix = "" if part.makes_run else "benchmarks/"
    return {
        "name": part.name,
        "what": part.what,
        "command": f"{words} {prefix}{' '.join(map(_quoted, part.command))}",
        "exit_code": done.returncode,
        "expected": part.expected,
        "said": _verdict_line(clean) if part.makes_run else "",
        "bits": bits,
        "seconds": round(seconds, 1),
    }


def public(text: str, run: Path) -> str:
    """The text without the places where this machine keeps things."""
    for path, name in ((run, "RUN"), (HERE.parent, "."), (Path(sys.prefix), "PYTHON")):
        text = text.replace(str(path), name)
    return text


def _bits(run: Path) -> str:
    command = [sys.executable, str(HERE / "bit_identity.py"), str(run)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout.strip()


def _verdict_line(console: str) -> str:
    """The line that sums up: cells and tokens, or fixes."""
    lines = [line for line in console.splitlines() if " cells, " in line or "fixes proven" in line]
    return lines[-1] if lines else console.strip().splitlines()[-1]


def _quoted(word: str) -> str:
    return f'"{word}"' if " " in word else word


def table(lines: list[dict[str, object]], title: str) -> str:
    """The record in markdown."""
    rows = [f"# {title}", "", "| what | command | result | s |", "|---|---|---|---|"]
    for line in lines:
        result = "; ".join(str(part) for part in (line["said"], line["bits"]) if part)
        as_expected = line["exit_code"] == line["expected"]
        result = result or ("see its figures.json" if as_expected else "")
        result += f" (exit {line['exit_code']}{'' if as_expected else ', NOT EXPECTED'})"
        rows.append(f"| {line['what']} | `{line['command']}` | {result} | {line['seconds']} |")
    return "\n".join(rows) + "\n"


def main() -> int:
    """Makes the record; prints each line as it comes."""
    parser = argparse.ArgumentParser(description="Make the GPU record of this machine.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--share-gpus", action="store_true")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--within", type=float, default=float("inf"), metavar="SECONDS")
    arguments = parser.parse_args()
    try:
        gpus = count_devices("cuda")
    except DeviceError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    own = [size for size in (1, 2, 4) if size <= gpus]
    lines = []
    began = time.monotonic()
    for part in parts([1, 2, 4] if arguments.share_gpus else own, own, arguments.share_gpus):
        if arguments.only and part.name not in arguments.only:
            continue
        if part.name == "smollm2" and not _has_model("smollm2"):
            print("smollm2: not installed, left out (graphcheck models add smollm2)", flush=True)
            continue
        if time.monotonic() - began > arguments.within:
            print(f"{part.name}: not started, {arguments.within:g} s are over", flush=True)
            continue
        line = make(part, arguments.out)
        lines.append(line)
        print(
            f"{line['name']}: exit {line['exit_code']}, {line['said']} {line['bits'] or ''} {line['seconds']} s",
            flush=True,
        )
        (arguments.out / "record.json").write_text(json.dumps(lines, indent=1), encoding="utf-8")
        (arguments.out / "README.md").write_text(table(lines, _title(gpus)), encoding="utf-8")
    return 0 if all(line["exit_code"] == line["expected"] for line in lines) else 1


def _has_model(name: str) -> bool:
    try:
        find_model(name)
    except ModelError:
        return False
    return True


def _title(gpus: int) -> str:
    return f"{gpus} GPU{'s' * (gpus > 1)}, {time.strftime('%Y-%m-%d')}"


if __name__ == "__main__":
    sys.exit(main())
