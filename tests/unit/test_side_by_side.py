"""Several threads at one piece of work: all of it, in order, and never behind the work of others."""

import threading

import pytest

from anchorscope import side_by_side as file
from anchorscope.side_by_side import side_by_side


@pytest.mark.parametrize("n", [0, 1, 2, 7, 300])
def test_everything_is_done_once_and_comes_in_order(n):
    seen = []
    assert side_by_side(lambda one: seen.append(one) or one * one, range(n)) == [one * one for one in range(n)]
    assert sorted(seen) == list(range(n))


def test_several_threads_work():
    meeting = threading.Barrier(2)
    side_by_side(lambda _: meeting.wait(10), range(2))


def test_who_asks_does_not_wait_behind_others():
    """A thread that feeds a GPU must not stand in line behind the hashing of a result."""
    go_on = threading.Event()
    busy = [file._threads().submit(go_on.wait, 30) for _ in range(64)]
    try:
        assert side_by_side(str, range(5)) == ["0", "1", "2", "3", "4"]
        assert not busy[-1].done()
    finally:
        go_on.set()


def test_a_failure_is_raised_and_nothing_goes_on_behind_it():
    done = []

    def work(one: int) -> None:
        if one == 3:
            raise OSError("no room")
        done.append(one)

    with pytest.raises(OSError, match="no room"):
        side_by_side(work, range(10_000))
    n_done = len(done)
    assert n_done < 9_999
    assert len(done) == n_done
