"""A run folder that cannot be written, or can no longer: one line, exit 2, no process left; /dev/shm is not needed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import ENVIRONMENT
from tests.fake_world import FakeWorld

CAN_MOUNT = (
    subprocess.run(
        ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
    ).returncode
    == 0
)
needs_mount = pytest.mark.skipif(not CAN_MOUNT, reason="this user may not mount a file system of its own")
PROGRAM = f"{sys.executable} -m graphcheck"


def shell(script: str, *program: str) -> subprocess.CompletedProcess[str]:
    """Runs a script, in namespaces of its own if `program` says so; its exit code is that of its last command."""
    return subprocess.run(
        [*program, "sh", "-c", script], capture_output=True, text=True, env=ENVIRONMENT, timeout=120, check=False
    )


def in_own_mounts(script: str) -> subprocess.CompletedProcess[str]:
    return shell(script, "unshare", "-rm")


def assert_one_line(done: subprocess.CompletedProcess[str], message: str) -> None:
    assert done.returncode == 2, done
    assert done.stderr.startswith(f"graphcheck: {message}"), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


@needs_mount
def test_a_read_only_file_system(fake_world: FakeWorld) -> None:
    fake_world.matrix(graph=["off"])
    Path("disk").mkdir()
    done = in_own_mounts(f"mount -t tmpfs -o ro none disk && {PROGRAM} run matrix m.toml --run-dir disk/run")
    assert_one_line(done, "disk/run: cannot be used (Read-only file system); name another with --run-dir")
    assert done.stdout == ""


@needs_mount
@pytest.mark.parametrize("kilobytes", [4, 20])
def test_a_full_file_system_ends_the_run_and_what_was_written_stays_whole(
    kilobytes: int, fake_world: FakeWorld
) -> None:
    fake_world.matrix(tp=[1, 2, 4], graph=["off", "on"])
    Path("disk").mkdir()
    run = f"{PROGRAM} run matrix m.toml --run-dir disk/run"
    script = f"mount -t tmpfs -o size={kilobytes}k none disk && {run}; code=$?; cp -r disk/run saved; exit $code"
    done = in_own_mounts(script)
    assert_one_line(done, "disk/run")
    assert "(No space left on device); free space or name another --run-dir" in done.stderr
    if Path("saved/run.json").exists():
        assert json.loads(Path("saved/run.json").read_text())["exit_code"] in (None, 2)


def test_files_of_limited_size(fake_world: FakeWorld) -> None:
    fake_world.matrix(tp=[1, 2, 4], graph=["off", "on"])
    done = shell(f"ulimit -f 16 && exec {PROGRAM} run matrix m.toml --run-dir run")
    assert_one_line(done, "run: can no longer be written (File too large); free space or name another --run-dir")
    assert json.loads(Path("run/run.json").read_text())["exit_code"] == 2


@needs_mount
def test_a_disk_that_fills_up_under_real_ranks_leaves_none_of_them(tmp_path: Path) -> None:
    script = f"""
    mount -t tmpfs -o size=52k none {tmp_path} && cd {tmp_path} &&
    {PROGRAM} run matrix -k 'tp=2 and graph=off' --run-dir run; code=$?
    test $(ls -d /proc/[0-9]* | wc -l) -le 4 || echo processes are left >&2
    exit $code
    """
    done = shell(script, "unshare", "-rmpf", "--mount-proc")
    assert_one_line(done, "run: can no longer be written (No space left on device); ")


@needs_mount
def test_ranks_run_without_dev_shm(tmp_path: Path) -> None:
    script = f"mount -t tmpfs -o ro none /dev/shm && cd {tmp_path} && {PROGRAM} run matrix -k 'tp=2 and graph=on'"
    done = in_own_mounts(script)
    assert (done.returncode, done.stderr) == (0, ""), done
