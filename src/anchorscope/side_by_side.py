"""Work on several threads of this process, for functions that release the interpreter's lock (copying, hashing)."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
_MOST_THREADS = 8


def side_by_side(work: Callable[[T], R], values: Sequence[T]) -> list[R]:
    """The results in the order of the values, by threads of its own."""
    if len(values) < 2:
        return [work(value) for value in values]
    with ThreadPoolExecutor(min(_MOST_THREADS, len(values))) as threads:
        return list(threads.map(work, values))
