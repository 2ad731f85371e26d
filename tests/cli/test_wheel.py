"""The wheel: what is in it, and that it runs the matrix in any folder."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", str(ROOT), "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder))
    [path] = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    pip("install", str(wheel), "--no-deps", "--no-compile", "--target", str(folder))
    return folder


def on_disk(folder: str) -> set[str]:
    files = (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(ROOT)) for path in files}


def test_the_wheel_holds_the_package_its_data_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = next(name for name in archive.namelist() if name.endswith("/METADATA"))
        described = archive.read(metadata).decode()
    data = {f"graphcheck/_shipped/{name}" for name in on_disk("golden") | on_disk("matrices")}
    assert names == on_disk("graphcheck") | data
    assert {
        "graphcheck/models/probe/config.json",
        "graphcheck/models/probe/model.safetensors",
        "graphcheck/models/probe/tokenizer.json",
        "graphcheck/_shipped/matrices/default.toml",
        "graphcheck/_shipped/matrices/suites/twelve.toml",
        "graphcheck/_shipped/golden/probe/twelve.jsonl",
    } <= names
    assert "License-Expression: Apache-2.0" in described
    assert wheel.stat().st_size < 6 * 2**20, "the probe may take 4 MiB; what else grew?"


def test_the_wheel_runs_a_matrix_in_an_empty_folder(site: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(site)}

    def python(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
        )

    where = python("-c", "import graphcheck, graphcheck.shipped as s; print(graphcheck.__file__, s.golden_dir())")
    assert [path.startswith(str(site)) for path in where.stdout.split()] == [True, True], where
    ran = python("-m", "graphcheck", "run", "matrix", "-k", "tp=2 and graph=on")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1/1 cells, 12/12 token-exact (tape on CPU, no CUDA graph ran)" in ran.stdout
