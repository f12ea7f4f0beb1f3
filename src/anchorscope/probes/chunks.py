"""How much is solved at once: problems and columns that fit the memory.

On a GPU one chunk is solved while the next is copied; on a CPU every core solves a chunk of its own, small enough for
its cache. What is solved together decides the last bits, so a chunk's size comes from the problems' shape and the
device's total memory, never from what is free or from the number of threads. Where a GPU's memory runs out anyway, the
remaining chunks become smaller, and the result says so.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Semaphore
from typing import TypeVar

import torch
from jaxtyping import Shaped
from torch import Tensor

from anchorscope.errors import UserError
from anchorscope.models.devices import free_memory, is_out_of_memory
from anchorscope.models.process_settings import workers_of_one_thread

Result = TypeVar("Result")

_FLOAT = 4  # bytes
_PER_ITEM, _PER_FEATURE = (
    10,
    12,
)  # numbers of each column, per item and per feature, that the solver holds at its peak
_CPU_CHUNK_BYTES = 2**30  # of one chunk
# of all chunks that are solved at the same time; the states themselves are there already
_CPU_BYTES = 2**32
_CPU_VALUES = 2**21  # states that a core works on at once
_CPU_PROBLEMS = 8  # more at once save no more overhead
# of all its memory: the model is there too, and chunks that are larger gain nothing
_GPU_SHARE = 1 / 4
_OTHER_BYTES = 2**32  # of devices that don't report their memory
_OVERLAP_BYTES = 2**30  # from so much on, copying is worth hiding behind the solving
# so that a CPU's cores have work, and a GPU something to copy meanwhile
_MIN_CHUNKS = 4


@dataclass(frozen=True)
class ChunkPlan:
    problems: int
    columns: int

    def bytes(self, n_items: int, width: int) -> int:
        """Peak bytes of a chunk, by the count that made the plan."""
        item_values, column_values = _values(n_items, width)
        return _FLOAT * self.problems * (item_values + self.columns * column_values)


def plan_chunks(
    shape: tuple[int, int, int],
    n_columns: int,
    device: torch.device,
    memory: int | None = None,
    itemsize: int = _FLOAT,
) -> ChunkPlan:
    """What fits: first fewer problems at once, then fewer columns.

    `shape` is (problems, items, d_model); `memory` in bytes.
    """
    n_problems, n_items, width = shape
    budget = (memory or chunk_bytes(device)) // _FLOAT
    item_values, column_values = _values(n_items, width)
    room = (
        budget - item_values if item_values + column_values <= budget else budget // 2
    )
    columns = max(1, min(n_columns, room // column_values))
    problems = min(
        n_problems, max(1, budget // (item_values + columns * column_values))
    )
    if device.type == "cpu":
        problems = min(
            problems, max(1, _CPU_VALUES // (n_items * width)), _CPU_PROBLEMS
        )
    if device.type == "cpu" or n_problems * n_items * width * itemsize > _OVERLAP_BYTES:
        problems = min(problems, -(-n_problems // _MIN_CHUNKS))
    return ChunkPlan(problems, columns)


def halved(plan: ChunkPlan) -> ChunkPlan | None:
    """A plan for half as many problems, or half as many columns of one; None if nothing can be smaller."""
    if plan.problems > 1:
        return replace(plan, problems=plan.problems // 2)
    return replace(plan, columns=plan.columns // 2) if plan.columns > 1 else None


def in_chunks(
    states: Shaped[Tensor, "problem item d_model"],
    plan: ChunkPlan,
    device: torch.device,
    work: Callable[[Tensor, ChunkPlan], Result],
    notes: list[str] | None = None,
) -> Iterator[Result]:
    """What `work` returns for each chunk, in order; `notes` gets a line where a GPU's memory ran out."""
    if device.type == "cpu":
        at_once = Semaphore(max(1, _CPU_BYTES // plan.bytes(*states.shape[1:])))

        def limited(chunk: Tensor) -> Result:
            with at_once:
                return work(chunk, plan)

        with workers_of_one_thread(torch.get_num_threads()) as pool:
            yield from pool.map(limited, states.split(plan.problems))
        return
    start = 0
    while start < len(states):
        for result in _solve_while_memory_lasts(states[start:], plan, device, work):
            yield result
            start += plan.problems
        if start < len(states):
            plan = _shrink_plan(plan, states, device, [] if notes is None else notes)


def _solve_while_memory_lasts(
    states: Tensor,
    plan: ChunkPlan,
    device: torch.device,
    work: Callable[[Tensor, ChunkPlan], Result],
) -> Iterator[Result]:
    """The chunks' results, up to the first for which memory runs out."""
    chunks = states.split(plan.problems)
    with ThreadPoolExecutor(1) as pool:
        # copied by the side, while the chunk before is solved
        coming = pool.submit(_fetched, chunks[0], device)
        for index in range(len(chunks)):
            try:
                fetched_chunk = coming.result()
                if index + 1 < len(chunks):
                    coming = pool.submit(_fetched, chunks[index + 1], device)
                result = work(fetched_chunk, plan)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                return
            yield result


def _shrink_plan(
    plan: ChunkPlan, states: Tensor, device: torch.device, notes: list[str]
) -> ChunkPlan:
    free_memory()  # what the failed chunk held is unreferenced by now
    n_items, width = states.shape[1:]
    smaller = halved(plan)
    if smaller is None:
        raise UserError(
            f"Memory of {device} does not suffice for a single probe on {n_items} items of width {width}; free some of "
            f"it, or fit the probes on another --device."
        )
    notes.append(
        f"memory ran out on {device} while probes were fitted: instead of {_describe_plan(plan)} "
        f"{_describe_plan(smaller)} were solved together, which can change the last digits"
    )
    return smaller


def _describe_plan(plan: ChunkPlan) -> str:
    return f"{plan.problems} layers with {plan.columns} fits each"


def _values(n_items: int, width: int) -> tuple[int, int]:
    """Numbers that a problem's items take (as they come, standardised, and once more in between), and one column's."""
    return n_items * width * 3, n_items * _PER_ITEM + width * _PER_FEATURE


def chunk_bytes(device: torch.device) -> int:
    """What one chunk may take: a constant, or a share of a GPU's total memory, rounded down to a power of two."""
    if device.type == "cpu":
        return _CPU_CHUNK_BYTES
    if device.type != "cuda":
        return _OTHER_BYTES
    return 1 << (
        int(
            _GPU_SHARE * torch.cuda.get_device_properties(device).total_memory
        ).bit_length()
        - 1
    )


def _fetched(chunk: Tensor, device: torch.device) -> Tensor:
    if (
        device.type != "cuda" or chunk.device.type != "cpu"
    ):  # what is on a GPU already cannot be pinned
        return chunk.to(device)
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        copied = chunk.pin_memory().to(device, non_blocking=True)
    stream.synchronize()  # this thread waits, the solver does not
    copied.record_stream(torch.cuda.default_stream(device))
    return copied
