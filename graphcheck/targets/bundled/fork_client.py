"""Owns the supervisor's hand on the fork server: starting it, asking for ranks, hearing of their ends."""

import json
import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from graphcheck.schema.errors import TargetError
from graphcheck.targets import own_process
from graphcheck.targets.bundled.fork_server import MAX_PACKET

_START_SECONDS = 120.0
_FORK_SECONDS = 30.0
_LOOK_SECONDS = 0.5
_LEAVE_SECONDS = 1.0


class ForkServer:
    """One fork server, alive until `close`.

    Raises TargetError if it cannot start, or has died. One that was stopped is as good as dead, and is killed: it could
    not tell how its ranks end.
    """

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                own_process.command("graphcheck.targets.bundled.fork_server", os.getpid(), theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                env=own_process.environment(),
                start_new_session=True,
            )
        self._socket = ours
        self._exits: dict[int, int] = {}
        self.pid = self._process.pid
        try:
            self._receive(_START_SECONDS, "ready")
        except BaseException:
            self.kill()
            self.close()
            raise

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
                self._process.wait(_LEAVE_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
                self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def _receive(self, seconds: float, wanted: str) -> int:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            message = self._poll(_LOOK_SECONDS)
            if message is not None and wanted in message:
                return message[wanted]
        # Its answer, should it still come, would be taken for that to the next request.
        self.kill()
        raise TargetError(
            f"fork server (pid {self._process.pid})",
            f"no `{wanted}` within {seconds:g} s",
            "look at the load of this machine, then run again",
        )

    def _poll(self, seconds: float) -> dict[str, int] | None:
        self._socket.settimeout(seconds)
        try:
            packet = self._socket.recv(MAX_PACKET)
        except (TimeoutError, BlockingIOError):
            if self._is_stopped():
                self.kill()
                raise self._died() from None
            return None
        except ConnectionResetError:
            packet = b""
        if not packet:
            raise self._died()
        message: dict[str, int] = json.loads(packet)
        if "exited" in message:
            self._exits[message["exited"]] = message["status"]
        return message

    def _is_stopped(self) -> bool:
        with suppress(ChildProcessError):
            return os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
        return False

    def _died(self) -> TargetError:
        """Ends what is left: one that leaves by itself has a moment to do so, since its exit status tells why."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LEAVE_SECONDS)
        self.kill()
        status = self._process.wait()
        assert self._process.stderr is not None
        last_line = (self._process.stderr.read().decode(errors="replace").strip().splitlines() or ["no output"])[-1]
        todo = (
            "look for what stopped or killed it" if status < 0 else "check that torch imports: python -c 'import torch'"
        )
        return TargetError(f"fork server (exit status {status}): {last_line}", "it must live as long as the run", todo)
