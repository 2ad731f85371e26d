"""Owns the reference as a target: starts its worker process, reads what it reports, ends it. Loads no torch itself."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from graphcheck.schema.base import AxisValue
from graphcheck.schema.capabilities import AxisSpec, Capabilities
from graphcheck.schema.errors import TargetError
from graphcheck.schema.events import EVENT, Event, ExitEvent
from graphcheck.schema.journal import Journal
from graphcheck.schema.suite import Workload
from graphcheck.targets import own_process
from graphcheck.targets.base import Launch

_CAPABILITIES = Capabilities(
    target="transformers",
    axes=(
        AxisSpec(
            name="dtype",
            kind="str",
            default="float32",
            choices=("float32", "bfloat16", "float16"),
            help="what the weights are rounded to; for the dtype of the arithmetic see `arithmetic`",
        ),
        AxisSpec(
            name="arithmetic",
            kind="str",
            default="float32",
            choices=("float32", "float64", "bfloat16", "float16"),
            help="dtype of matrix products and activations, over the rounded weights",
        ),
        AxisSpec(
            name="attention",
            kind="str",
            default="eager",
            choices=("eager", "sdpa"),
            help="which of transformers' attention implementations computes",
        ),
    ),
    gives_top_logits=True,
    gives_forced=True,
)

# The reference runs on the CPU, on one thread, without network, whatever the parent's environment says.
_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


class TransformersTarget:
    """transformers on the CPU: greedy `generate`, or one teacher-forced pass. Stateless: each attempt is a process."""

    def describe(self) -> Capabilities:
        return _CAPABILITIES

    def check(self, settings: Mapping[str, AxisValue]) -> None:
        """See Target.check: its settings do not hang together."""

    def start(self, launch: Launch, workload: Workload, out_dir: Path) -> "WorkerSession":
        """Starts the worker; its job and its log (stdout and stderr) are files in `out_dir`.

        Raises:
            TargetError: the process could not be started.
        """
        out_dir.mkdir(parents=True, exist_ok=True)
        job = out_dir / "job.json"
        job.write_text(
            json.dumps(
                {
                    "model_dir": str(launch.model_dir),
                    **{axis.name: launch.settings.get(axis.name, axis.default) for axis in _CAPABILITIES.axes},
                    "workload": workload.model_dump(mode="json"),
                }
            )
        )
        return WorkerSession(job, out_dir / "rank0.log")

    def close(self) -> None:
        """Nothing is kept between attempts."""


class WorkerSession:
    """One worker. Its events come through a pipe of their own, so that no library's output can get between them."""

    num_ranks = 1

    def __init__(self, job: Path, log: Path) -> None:
        self._events, write_end = os.pipe()
        try:
            with log.open("wb") as output:
                self._process = subprocess.Popen(
                    own_process.command("graphcheck.targets.transformers", os.getpid(), job, write_end),
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=[write_end],
                    env=own_process.environment(**_ENVIRONMENT),
                    start_new_session=True,
                )
        except OSError as failure:
            os.close(self._events)
            raise TargetError(sys.executable, f"cannot be started ({failure.strerror})", "check it") from None
        finally:
            os.close(write_end)
        assert self._process.stdin is not None
        self._stdin = self._process.stdin
        self._unparsed = b""
        self._open = True
        self._exit_reported = False

    def events(self, timeout: float) -> Sequence[Event]:
        """Records since the last call; the last one ever is the ExitEvent."""
        if self._open and select.select([self._events], [], [], timeout)[0]:
            received = os.read(self._events, 1 << 20)
            *lines, self._unparsed = (self._unparsed + received).split(b"\n")
            if received:
                return [EVENT.validate_json(line) for line in lines]
            self._close_events()
        if self._open or self._exit_reported:
            return []
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return []
        self._exit_reported = True
        return [ExitEvent(rank=0, status=status) if status >= 0 else ExitEvent(rank=0, signal=-status)]

    def journals(self) -> Sequence[Journal]:
        return ()

    def release(self) -> None:
        """Lets the worker leave; without it the worker stays until this process ends or kills it."""
        if not self._stdin.closed:
            with contextlib.suppress(OSError):  # it has left already
                self._stdin.write(b"\n")
                self._stdin.flush()

    def dump(self) -> Mapping[int, str]:
        return {}

    def kill(self) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        with contextlib.suppress(OSError):
            self._stdin.close()
        self._close_events()

    def _close_events(self) -> None:
        if self._open:
            os.close(self._events)
            self._open = False
