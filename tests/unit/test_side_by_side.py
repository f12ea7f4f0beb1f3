"""Several threads at one piece of work: all of it, in order, and never behind the work of others."""

import threading

import pytest

from anchorscope.side_by_side import side_by_side


@pytest.mark.parametrize("n", [0, 1, 2, 7, 300])
def test_everything_is_done_once_and_comes_in_order(n):
    seen = []
    assert side_by_side(lambda value: seen.append(value) or value**2, range(n)) == [value**2 for value in range(n)]
    assert sorted(seen) == list(range(n))


def test_several_threads_work():
    meeting = threading.Barrier(2)
    side_by_side(lambda _: meeting.wait(10), range(2))


def test_work_may_ask_for_more_of_it():
    def nested(number):
        return sum(side_by_side(lambda value: value * number, range(20)))

    assert side_by_side(nested, range(20)) == [190 * number for number in range(20)]


def test_a_failure_is_raised_and_nothing_goes_on_behind_it():
    done = []

    def work(value: int) -> None:
        if value == 3:
            raise OSError("no room")
        done.append(value)

    with pytest.raises(OSError, match="no room"):
        side_by_side(work, range(10_000))
    n_done = len(done)
    assert n_done < 9_999
    assert len(done) == n_done
