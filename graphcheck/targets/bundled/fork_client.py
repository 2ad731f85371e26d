"""Owns the supervisor's hand on the fork server: starting it, asking for ranks, hearing of their ends."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from graphcheck.schema.errors import TargetError
from graphcheck.targets.bundled.fork_server import MAX_PACKET

_START_SECONDS = 120.0
_FORK_SECONDS = 30.0


class ForkServer:
    """One fork server, alive until `close`. Raises TargetError if it cannot start or has died."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        package_root = str(Path(__file__).parents[3])
        path = os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH", "")]))
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "graphcheck.targets.bundled.fork_server", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                env=os.environ | {"PYTHONPATH": path},
                start_new_session=True,
            )
        self._socket = ours
        self._exits: dict[int, int] = {}
        self.pid = self._process.pid
        self._receive(_START_SECONDS, "ready")

    def fork(self, rank: int, job: Path, files: list[int]) -> int:
        """Starts a rank with the files of RankFiles, in its own session; returns its process id."""
        request = json.dumps({"rank": rank, "job": str(job)}).encode()
        try:
            socket.send_fds(self._socket, [request], files)
        except OSError as error:
            raise self._died() from error
        return self._receive(_FORK_SECONDS, "forked")

    def exit_status(self, process: int) -> int | None:
        """Exit status of a rank (a negative signal number if it was killed), or None while it runs.

        Raises:
            TargetError: the fork server has died, so that no status can be had.
        """
        while process not in self._exits and self._poll(0.0):
            pass
        return self._exits.get(process)

    def fileno(self) -> int:
        """For select: readable when a rank has ended."""
        return self._socket.fileno()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Ends a server that does not answer; its ranks must be dead already."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Ends the server and every rank it still has. Idempotent."""
        self._socket.close()
        if self._process.poll() is None:
            try:
                self._process.wait(1.0)
            except subprocess.TimeoutExpired:
                self.kill()
                self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def _receive(self, seconds: float, wanted: str) -> int:
        while True:
            message = self._poll(seconds)
            if message is None:
                raise TargetError(
                    f"fork server (pid {self._process.pid})",
                    f"no `{wanted}` within {seconds:g} s",
                    "look at the load of this machine, then run again",
                )
            if wanted in message:
                return message[wanted]

    def _poll(self, seconds: float) -> dict[str, int] | None:
        self._socket.settimeout(seconds)
        try:
            packet = self._socket.recv(MAX_PACKET)
        except (TimeoutError, BlockingIOError):
            return None
        except ConnectionResetError:
            packet = b""
        if not packet:
            raise self._died()
        message: dict[str, int] = json.loads(packet)
        if "exited" in message:
            self._exits[message["exited"]] = message["status"]
        return message

    def _died(self) -> TargetError:
        status = self._process.wait()
        assert self._process.stderr is not None
        last_line = (self._process.stderr.read().decode(errors="replace").strip().splitlines() or ["no output"])[-1]
        return TargetError(
            f"fork server (exit status {status}): {last_line}",
            "it must live as long as the run",
            "check that torch imports: python -c 'import torch'",
        )
