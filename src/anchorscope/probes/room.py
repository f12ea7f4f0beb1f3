"""How much is solved at once: problems, columns and items that fit the memory, and how the next ones come.

On a GPU one chunk of problems is solved while the next is copied. On a CPU every core solves a chunk of its own: the
matrices are too small to share one between cores, and small chunks stay in the cache.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from anchorscope.models.process_settings import true_float32 as true_float32
from anchorscope.models.process_settings import workers_of_one_thread

Result = TypeVar("Result")

_FLOAT = 4  # bytes
_PER_ITEM, _PER_FEATURE = 10, 12  # numbers of each column, per item and per feature, that the solver holds at its peak
_CPU_BYTES = 2**32  # for all cores together; the states themselves are there already
_OTHER_BYTES = 2**32  # of devices that do not tell what is free
_FREE_SHARE = 0.7  # of what a GPU has free; the rest is for what its libraries need
_CPU_VALUES = 2**21  # states that a core works on at once
_CPU_PROBLEMS = 8  # more at once save no more overhead
_OVERLAP_BYTES = 2**30  # from so much on, copying is worth hiding behind the solving
_OVERLAP_CHUNKS = 4


@dataclass(frozen=True)
class Room:
    """What is on the device at once."""

    problems: int
    columns: int
    items: int | None
    """Items that are brought to the device at a time, for every product anew; None where they can stay."""


def find_room(states: Tensor, n_columns: int, device: torch.device, memory: int | None = None) -> Room:
    """What fits: first fewer problems at once, then fewer columns, and only then are items streamed.

    `states` is [problem, item, d_model]; `memory` in bytes, of what the device has free where not given.
    """
    n_problems, n_items, width = states.shape
    free = memory or _free(device)
    workers = _workers(device)
    budget = free // workers // _FLOAT
    item_values = n_items * width * 3  # as they come, in the solver's coordinates, and once more while these are made
    column_values = n_items * _PER_ITEM + width * _PER_FEATURE
    if item_values + column_values > budget:
        return Room(1, max(1, min(n_columns, budget // 2 // column_values)), max(1, budget // 2 // (5 * width)))
    columns = max(1, min(n_columns, (budget - item_values) // column_values))
    problems = max(1, budget // (item_values + columns * column_values))
    if device.type == "cpu":
        problems = min(problems, max(1, _CPU_VALUES // (n_items * width)), _CPU_PROBLEMS)
    elif states.numel() * states.element_size() > _OVERLAP_BYTES:
        problems = min(problems, -(-n_problems // _OVERLAP_CHUNKS))
    return Room(min(problems, -(-n_problems // workers)), columns, None)


def in_chunks(
    states: Tensor, room: Room, device: torch.device, work: Callable[[Tensor], Result]
) -> Iterator[tuple[int, Result]]:
    """Each chunk's first problem and what `work` makes of its states, in order."""
    chunks = states.split(room.problems)
    starts = range(0, len(states), room.problems)
    if device.type == "cpu":
        with workers_of_one_thread(_workers(device)) as pool:
            yield from zip(starts, pool.map(work, chunks), strict=True)
        return
    with ThreadPoolExecutor(1) as pool:
        # Streamed states stay where they are; others are copied by the side, while the chunk before is solved.
        fetch = (lambda chunk: chunk) if room.items else (lambda chunk: _fetched(chunk, device))
        coming = pool.submit(fetch, chunks[0])
        for place, start in enumerate(starts):
            here = coming.result()
            if place + 1 < len(chunks):
                coming = pool.submit(fetch, chunks[place + 1])
            yield start, work(here)


def _workers(device: torch.device) -> int:
    return torch.get_num_threads() if device.type == "cpu" else 1


def _free(device: torch.device) -> int:
    if device.type == "cpu":
        return _CPU_BYTES
    if device.type != "cuda":
        return _OTHER_BYTES
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(_FREE_SHARE * (torch.cuda.mem_get_info(device)[0] + unused))


def _fetched(chunk: Tensor, device: torch.device) -> Tensor:
    if device.type != "cuda" or chunk.device == device:
        return chunk.to(device)
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        copied = chunk.pin_memory().to(device, non_blocking=True)
    stream.synchronize()  # this thread waits, the solver does not
    copied.record_stream(torch.cuda.default_stream(device))
    return copied
