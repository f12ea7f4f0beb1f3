"""The process that workers are copies of: a copy that cannot be made fails alone, and whoever asked for it is told."""

import os
import socket
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
