"""Owns the process that has imported torch but never touched a device, and forks ranks from itself on request.

Requests and answers are JSON packets on one socket; the files of a rank travel with its request. It ends, and ends
its ranks, when the other side of the socket is gone.
"""

import importlib
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress

from graphcheck.targets.own_process import die_with

MAX_PACKET = 64 * 1024
FILES_PER_RANK = 6


def main() -> None:
    """Arguments: the process id of the supervisor, the file descriptor of the socket to serve."""
    supervisor, control_file = map(int, sys.argv[1:])
    die_with(supervisor)
    control = socket.socket(fileno=control_file)
    # The first op under a dispatch mode imports torch._dynamo (over a second): once here, not once a rank.
    importlib.import_module("torch._dynamo")

    from graphcheck.targets.bundled.rank import RankFiles, run_rank
    from graphcheck.targets.loaded import loaded

    loaded()
    wakeup_read, wakeup_write = os.pipe()
    os.set_blocking(wakeup_write, False)
    signal.set_wakeup_fd(wakeup_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    children: set[int] = set()
    control.send(json.dumps({"ready": os.getpid()}).encode())
    while True:
        readable, _, _ = select.select([control.fileno(), wakeup_read], [], [])
        if wakeup_read in readable:
            os.read(wakeup_read, 4096)
            _report_exits(control, children)
        if control.fileno() in readable:
            packet, files, _, _ = socket.recv_fds(control, MAX_PACKET, FILES_PER_RANK)
            if not packet:
                break
            request = json.loads(packet)
            server = os.getpid()
            child = os.fork()
            if child == 0:
                die_with(server)
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for inherited in (control.detach(), wakeup_read, wakeup_write):
                    os.close(inherited)
                os._exit(run_rank(request["rank"], request["job"], RankFiles(*files)))
            children.add(child)
            for file in files:
                os.close(file)
            control.send(json.dumps({"forked": child, "rank": request["rank"]}).encode())
    for child in children:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    # Taking the interpreter apart with torch in it takes a second or more, and there is nothing left to save.
    os._exit(0)


def _report_exits(control: socket.socket, children: set[int]) -> None:
    while children:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            return
        children.discard(child)
        with suppress(BrokenPipeError):
            control.send(json.dumps({"exited": child, "status": os.waitstatus_to_exitcode(status)}).encode())


if __name__ == "__main__":
    main()
