"""The process that workers are copies of: a copy that cannot be made fails alone, and whoever asked for it is told."""

import os
import socket
import subprocess
import tempfile

from anchorscope.execute.starter import Starter

ONCE_TOO_MANY = """
import errno, os, socket, sys
from anchorscope.execute import starter
from anchorscope.execute.frames import Frames

fork, failed = os.fork, []

def full():
    if failed:
        return fork()
    failed.append(True)
    raise BlockingIOError(errno.EAGAIN, "no more processes")

os.fork, starter._import_libraries = full, lambda: None
connection = socket.socket(fileno=int(sys.argv[1]))
frames = Frames(connection)
frames.receive()
starter.serve_starts(connection, frames, lambda file: os._exit(7))
"""
"""A starter on a machine that has room for one process more only after the first was asked for."""


def test_a_copy_that_cannot_be_made_fails_alone() -> None:
    starter = Starter(("-c", ONCE_TOO_MANY), os.environ)
    ours, theirs = socket.socketpair()
    try:
        with ours, theirs, tempfile.TemporaryFile() as printed:
            refused, begun = (starter.start(theirs.fileno(), printed.fileno()) for _ in range(2))
            refused.wait(10)
            begun.wait(10)
        assert (refused.pid, refused.returncode) == (None, 1)
        assert begun.pid is not None
        assert begun.returncode == 7
        assert not starter.is_gone
        starter.printed.seek(0)
        assert b"no more processes" in starter.printed.read()
    finally:
        starter.close()
    assert starter._process.poll() is not None


def test_whoever_asks_when_it_is_gone_is_told_at_once() -> None:
    starter = Starter(("-c", "raise SystemExit(9)"), os.environ)
    ours, theirs = socket.socketpair()
    try:
        with ours, theirs, tempfile.TemporaryFile() as printed:
            asked = starter.start(theirs.fileno(), printed.fileno())
            asked.wait(10)
            assert asked.returncode in (1, 9)  # it was not asked any more, or never told of a worker
            starter._process.wait(10)
            again = starter.start(theirs.fileno(), printed.fileno())
            again.wait(10)
            assert again.returncode in (1, 9)
    except subprocess.TimeoutExpired:
        raise AssertionError("somebody waits for a worker that will never be") from None
    finally:
        starter.close()
