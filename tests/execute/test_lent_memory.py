"""Large results travel as memory that is lent: the same bytes, sealed, given back with the last look at them."""

import gc
import os
import socket
import threading

import numpy as np
import pytest
import torch

from anchorscope.engine.capture import EdgeCounts
from anchorscope.execute import frames as frames_file
from anchorscope.execute.content_hash import CHUNK
from anchorscope.execute.frames import LENT_FROM, Closed, Frames
from anchorscope.execute.lent_memory import CAN_LEND, read_sealed, write_sealed
from anchorscope.execute.merging import merge_states
from anchorscope.execute.parts import StatesPart, VariantPart
from anchorscope.execute.wire import pack, pack_result, unpack

pytestmark = pytest.mark.skipif(not CAN_LEND, reason="this system cannot lend memory")
PART = {"states": torch.arange(2.0**19).reshape(64, -1), "bits": torch.arange(9).to(torch.bfloat16), "text": "a"}


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Frames(ours), Frames(theirs)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def mapped() -> int:
    with open("/proc/self/maps") as file:
        return file.read().count("anchorscope result")


def test_a_result_is_lent_and_given_back(ends, monkeypatch):
    ours, theirs = ends
    before, sent = open_files(), []
    monkeypatch.setattr(frames_file, "write_sealed", lambda pieces: sent.append(len(pieces)) or write_sealed(pieces))
    for number in range(3):
        ours.send({"n": number}, {"body": pack_result(PART), "note": b"small"})
        header, parts = theirs.receive()
        assert header == {"n": number}
        assert parts["note"] == b"small"
        assert len(sent) == number + 1
        assert bytes(parts["body"]) == pack(PART, apart=False).body, "the bytes of one who sends them whole"
        found = unpack(parts["body"], {})
        assert torch.equal(found["states"], PART["states"])
        assert torch.equal(found["bits"], PART["bits"])
        found["states"] += 1  # as of one's own memory
        del parts, found
    gc.collect()
    assert (open_files(), mapped()) == (before, 0)


def test_many_results_hold_no_files(ends):
    """A pass holds all of its results until it is done: thousands, more than files may be open."""
    ours, theirs = ends
    before, held, pieces = open_files(), [], pack_result(PART)
    for _ in range(40):
        ours.send({}, {"body": pieces})
        held.append(theirs.receive()[1]["body"])
    assert open_files() == before
    assert mapped() == 40
    assert all(bytes(one[-64:]) == bytes(held[0][-64:]) for one in held)


def test_several_large_results_of_two_threads_do_not_mix(ends):
    ours, theirs = ends
    parts = [[bytes([number]) * 5, bytes([number]) * LENT_FROM] for number in range(4)]
    threads = [threading.Thread(target=ours.send, args=({"n": n}, {"body": parts[n]})) for n in range(4)]
    for thread in threads:
        thread.start()
    for _ in threads:
        header, found = theirs.receive()
        assert found["body"] == b"".join(parts[header["n"]])
    for thread in threads:
        thread.join()


def test_pieces_of_any_number_and_size_are_written_in_their_order():
    pieces = [np.full(7 + n % 3, n % 251, np.uint8).data for n in range(1_300)]
    fd = write_sealed(pieces)
    assert bytes(read_sealed(fd, sum(map(len, pieces)))) == b"".join(pieces)
    os.close(fd)


def test_memory_that_could_change_is_refused(ends):
    ours, theirs = ends
    fd = os.memfd_create("open", os.MFD_ALLOW_SEALING)
    os.write(fd, b"x" * 100)
    with pytest.raises(ValueError, match="not sealed"):
        read_sealed(fd, 100)
    os.close(fd)
    sealed = write_sealed([b"x" * 100])
    with pytest.raises(ValueError, match="not of 101 bytes"):
        read_sealed(sealed, 101)
    with pytest.raises(PermissionError):
        os.write(sealed, b"y")
    before = open_files()
    text = b'{"header":{},"parts":{"body":101},"lent":["body"]}'
    socket.send_fds(ours._connection, [len(text).to_bytes(8, "big") + text], [sealed])
    with pytest.raises(Closed, match="not of 101 bytes"):
        theirs.receive()
    assert open_files() == before, "what was lent is closed"
    os.close(sealed)


def test_elsewhere_pieces_go_through_the_socket(ends, monkeypatch):
    monkeypatch.setattr(frames_file, "CAN_LEND", False)
    ours, theirs = ends
    pieces = pack_result(PART)
    thread = threading.Thread(target=ours.send, args=({}, {"body": pieces}))
    thread.start()
    assert theirs.receive()[1]["body"] == b"".join(pieces)
    thread.join()


def test_where_memory_cannot_be_lent_now_pieces_go_through_the_socket(ends, monkeypatch):
    def refuse(pieces):
        raise OSError("not here")

    monkeypatch.setattr(frames_file, "write_sealed", refuse)
    ours, theirs = ends
    pieces = pack_result(PART)
    thread = threading.Thread(target=ours.send, args=({}, {"body": pieces}))
    thread.start()
    assert theirs.receive()[1]["body"] == b"".join(pieces)
    thread.join()


def test_a_write_that_fails_leaves_no_file(monkeypatch):
    def fail(fd, data, at):
        raise OSError("no room")

    before = open_files()
    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(OSError, match="no room"):
        write_sealed([b"x" * 3 * CHUNK])
    assert open_files() == before


def test_memory_that_this_process_cannot_map_is_an_error_of_the_system(monkeypatch):
    def fail(*arguments, **options):
        raise RuntimeError("unable to mmap")

    fd = write_sealed([b"x" * 100])
    monkeypatch.setattr(torch, "from_file", fail)
    with pytest.raises(OSError, match="unable to mmap"):
        read_sealed(fd, 100)
    os.close(fd)


def test_a_part_is_given_back_as_soon_as_it_is_merged(ends):
    """All parts of a pass together do not fit where one after the other does."""
    ours, theirs = ends
    held = []

    def parts():
        for first in range(0, 12, 2):
            items = np.arange(first, first + 2)
            edges = EdgeCounts(np.ones((1, 2), np.int64), np.ones((1, 2), bool), untouched=False)
            ours.send({}, {"body": pack_result(StatesPart(
                (VariantPart(items, None, torch.full((2, 2, 2, 2**17), float(first))),), edges, {}))})
            yield unpack(theirs.receive()[1]["body"], {})
            gc.collect()
            held.append(mapped())

    found = merge_states(parts(), 12)
    assert max(held[1:]) <= 1, held
    (variant,) = found.variants
    assert variant.states[0, 0, :, 0].tolist() == [0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10]
    assert found.edges.lost.tolist() == [[6, 6]]
