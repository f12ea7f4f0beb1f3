"""Work for several threads of this process at once: such as leaves the interpreter's lock alone (copying, hashing)."""

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")
_MOST_THREADS = 8


def side_by_side(work: Callable[[T], R], values: Sequence[T]) -> list[R]:
    """What the work gives for each, in their order.

    The thread that asks works too: it never waits behind what others have asked for.
    """
    found: list[Any] = [None] * len(values)
    places = iter(range(len(values)))

    def work_on() -> None:
        try:
            for place in places:
                found[place] = work(values[place])
        except BaseException:
            deque(places, maxlen=0)  # nobody begins another one
            raise

    helpers = [_threads().submit(work_on) for _ in range(min(_MOST_THREADS, len(values)) - 1)]
    try:
        work_on()
    finally:
        helped = [one for one in helpers if not one.cancel()]
        wait(helped)  # also where one fails: none goes on behind the caller's back
    for one in helped:
        one.result()
    return found


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1), "side by side")


os.register_at_fork(after_in_child=_threads.cache_clear)  # threads stay behind
