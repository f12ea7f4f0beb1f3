"""Messages over a socket: whole or not at all, and nothing that comes can do more than end the connection."""

import socket
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.execute.frames import Closed, Frames


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@given(st.dictionaries(st.text(), st.one_of(st.integers(), st.text())), st.dictionaries(st.text(), st.binary()))
def test_what_is_sent_arrives(header, parts):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Frames(ours).send(header, parts)
        assert Frames(theirs).receive() == (header, parts)


def test_large_messages_from_two_threads_do_not_mix(ends):
    ours, theirs = map(Frames, ends)
    bodies = [bytes([number]) * 3_000_000 for number in range(2)]
    threads = [threading.Thread(target=ours.send, args=({"n": n}, {"body": bodies[n]})) for n in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        header, parts = theirs.receive()
        assert parts == {"body": bodies[header["n"]]}
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\0\0",
        struct.pack("!Q", 2**40),
        struct.pack("!Q", 3) + b"{}}",
        struct.pack("!Q", 2) + b"[]",
        struct.pack("!Q", 30) + b'{"header": {}, "parts": {"a":9',
        struct.pack("!Q", 14) + b"not JSON at al",
    ],
)
def test_what_is_no_message_ends_the_connection(ends, sent):
    ours, theirs = ends
    ours.sendall(sent)
    ours.close()
    with pytest.raises(Closed):
        Frames(theirs).receive()


def test_closing_wakes_who_waits(ends):
    ours, _ = map(Frames, ends)
    found = []

    def wait() -> None:
        with pytest.raises(Closed):
            ours.receive()
        found.append(True)

    thread = threading.Thread(target=wait)
    thread.start()
    ours.close()
    thread.join(10)
    assert found
    with pytest.raises(Closed):
        ours.send({})
