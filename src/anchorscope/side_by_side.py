"""Work for several threads of this process at once: such as leaves the interpreter's lock alone (copying, hashing)."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
_MOST_THREADS = 8


def side_by_side(work: Callable[[T], R], values: Sequence[T]) -> list[R]:
    """What the work gives for each, in their order; one alone is done by the thread that asks."""
    if len(values) < 2:
        return [work(one) for one in values]
    running = [_threads().submit(work, one) for one in values]
    wait(running)  # also where one fails: none goes on behind the caller's back
    return [one.result() for one in running]


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1), "side by side")


os.register_at_fork(after_in_child=_threads.cache_clear)  # threads stay behind
