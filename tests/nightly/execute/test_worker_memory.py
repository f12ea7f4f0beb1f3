"""Large results are read where they lie: the same bytes, held until they are read; else through the socket."""

import gc
import os
import socket
import threading
import weakref

import numpy as np
import pytest
import torch

from anchorscope.engine.answer_stats import AnswerStats
from anchorscope.engine.capture import EdgeCounts
from anchorscope.execute import frames as frames_file
from anchorscope.execute import merging
from anchorscope.execute.frames import OFFERED_FROM, Closed, Frames
from anchorscope.execute.merging import merge_states
from anchorscope.execute.parts import StatesPart, VariantPart
from anchorscope.execute.wire import pack, pack_result, unpack
from anchorscope.execute.worker_memory import CAN_READ, places_of, read_places


def is_forbidden() -> bool:
    """Whether this system does not let a process read even its own memory so, as some containers do."""
    try:
        return not CAN_READ or bytes(read_places(os.getpid(), places_of([b"x"]))) != b"x"
    except OSError:
        return True


pytestmark = pytest.mark.skipif(is_forbidden(), reason="this system forbids to read another process's memory")
PART = {"states": torch.arange(2.0**19).reshape(64, -1), "bits": torch.arange(9).to(torch.bfloat16), "text": "a"}


def receive_all(frames: Frames) -> None:
    """As a worker's thread does, for the answers that come."""
    try:
        while True:
            frames.receive()
    except Closed:
        pass


@pytest.fixture
def ends():
    """A worker's end, and the coordinator's; both are in this process."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        worker, coordinator = Frames(ours, offers=True), Frames(theirs, process=os.getpid)
        thread = threading.Thread(target=receive_all, args=(worker,))
        thread.start()
        yield worker, coordinator
        worker.close()
        thread.join(10)
        assert not thread.is_alive()


def sent(frames: Frames, header: dict, parts: dict) -> threading.Thread:
    thread = threading.Thread(target=frames.send, args=(header, parts))
    thread.start()
    return thread


@pytest.fixture
def reads(monkeypatch) -> list[int]:
    """How many bytes were read from memory, each time."""
    found = list[int]()

    def reading(process, places):
        found.append(sum(size for _, size in places))
        return read_places(process, places)

    monkeypatch.setattr(frames_file, "read_places", reading)
    return found


def test_a_result_is_read_where_it_lies(ends, reads):
    worker, coordinator = ends
    for number in range(3):
        thread = sent(worker, {"n": number}, {"body": pack_result(PART), "note": b"small"})
        header, parts = coordinator.receive()
        thread.join(10)
        assert header == {"n": number}
        assert parts["note"] == b"small"
        whole = pack(PART, apart=False).body
        assert reads == [len(whole)] * (number + 1)
        assert bytes(parts["body"]) == whole, "the bytes of one who sends them whole"
        found = unpack(parts["body"], {})
        assert torch.equal(found["states"], PART["states"])
        assert torch.equal(found["bits"], PART["bits"])
        found["states"] += 1  # as of one's own memory
    assert PART["states"][0, 0] == 0


def test_what_was_offered_stays_until_it_was_read(ends):
    """Somebody else may have its memory afterwards."""
    worker, coordinator = ends
    held = np.arange(OFFERED_FROM, dtype=np.uint8)
    gone = weakref.ref(held)
    thread = sent(worker, {}, {"body": [held.data, b"end"]})
    del held
    gc.collect()
    thread.join(0.3)
    assert thread.is_alive(), "it waits"
    assert gone() is not None
    assert coordinator.receive()[1]["body"][-3:] == b"end"
    thread.join(10)
    del thread
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(("refusal", "n_tried"), [(PermissionError(1, "not allowed"), 1), (MemoryError(), 2)])
def test_where_memory_cannot_be_read_results_go_through_the_socket(ends, monkeypatch, refusal, n_tried):
    """What is forbidden is not tried again; what there was no room for is."""
    tried = []

    def refuse(process, places):
        tried.append(places)
        raise refusal

    monkeypatch.setattr(frames_file, "read_places", refuse)
    worker, coordinator = ends
    pieces = pack_result(PART)
    for _ in range(2):
        thread = sent(worker, {}, {"body": pieces})
        assert coordinator.receive()[1]["body"] == b"".join(pieces)
        thread.join(10)
    assert len(tried) == n_tried


@pytest.mark.parametrize("with_answers", [False, True])
def test_a_part_is_let_go_when_it_is_merged(ends, with_answers, monkeypatch):
    """All parts of a pass together do not fit where a few do."""
    monkeypatch.setattr(merging, "WAITING", 3 * 2**22)  # three of the parts below
    worker, coordinator = ends
    held, bodies = [], list[weakref.ref]()

    def parts():
        for first in range(0, 40, 2):
            items = np.arange(first, first + 2)
            edges = EdgeCounts(np.ones((1, 2), np.int64), np.ones((1, 2), bool), untouched=False)
            answers = AnswerStats.of([np.full((3, 1), first, np.float32)] * 2) if with_answers else None
            states = torch.full((2, 2, 2, 2**17), float(first))
            part = StatesPart((VariantPart(items, None, states, answers),), edges, {})
            sent(worker, {}, {"body": pack_result(part)})
            body = coordinator.receive()[1]["body"]
            bodies.append(weakref.ref(body.obj))
            yield unpack(body, {})
            del body
            gc.collect()
            held.append(sum(one() is not None for one in bodies))

    found = merge_states(parts(), 40)
    assert max(held) <= 5, held  # three wait, one is being merged, one has just come
    (variant,) = found.variants
    wanted = [first for first in range(0, 40, 2) for _ in range(2)]
    assert variant.states[0, 0, :, 0].tolist() == wanted
    assert found.edges.lost.tolist() == [[20, 20]]
    if with_answers:
        assert variant.answers.log_prob.tolist() == wanted


@pytest.mark.parametrize("place", [0, 1, 4, 5])
def test_a_part_that_cannot_be_merged_ends_the_pass(place):
    """Whichever it is, and though a thread of its own meets it."""

    def parts():
        for number in range(6):
            edges = EdgeCounts(np.ones((1, 1), np.int64), np.ones((1, 1), bool), untouched=False)
            states = torch.zeros(1, 1, 2 if number == place else 1, 2)
            yield StatesPart((VariantPart(np.array([number]), None, states),), edges, {})

    with pytest.raises(Exception, match=r"shape mismatch|violates type hint"):  # whoever sees the shape first
        merge_states(parts(), 6)


def test_a_pass_that_ends_early_does_not_merge_what_waits(monkeypatch):
    begun, go_on = list[int](), threading.Event()

    def slow(self, part):
        begun.append(int(part.items[0]))
        go_on.wait(10)

    monkeypatch.setattr(merging._Variant, "add", slow)

    def parts():
        for number in range(5):
            edges = EdgeCounts(np.ones((1, 1), np.int64), np.ones((1, 1), bool), untouched=False)
            yield StatesPart((VariantPart(np.array([number]), None, torch.zeros(1, 1, 1, 2)),), edges, {})
        threading.Timer(0.2, go_on.set).start()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        merge_states(parts(), 5)
    assert begun == [0]
