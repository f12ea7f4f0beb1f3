"""How much is solved at once: problems, columns and items that fit the memory.

On a GPU one chunk is solved while the next is copied; on a CPU every core solves a chunk of its own, small enough for
its cache. What is solved together decides the last bits, so a chunk's size comes from the problems' shape and the
device's total memory, never from what is free or from the number of threads. Where a GPU's memory runs out anyway, the
remaining chunks become smaller, and the result says so.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Semaphore
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Shaped
from torch import Tensor

from anchorscope.errors import UserError
from anchorscope.models.devices import free_memory, is_out_of_memory
from anchorscope.models.process_settings import workers_of_one_thread
from anchorscope.progress import Progress

Result = TypeVar("Result")

_FLOAT = 4  # bytes
_PER_ITEM, _PER_FEATURE = 10, 12  # numbers of each column, per item and per feature, that the solver holds at its peak
_STREAMED_PER_FEATURE = 5  # numbers per feature of a streamed item: as it comes, in float64, in float32
_CPU_CHUNK_BYTES = 2**30  # of one chunk
_CPU_BYTES = 2**32  # of all chunks that are solved at the same time; the states themselves are there already
_CPU_VALUES = 2**21  # states that a core works on at once
_CPU_PROBLEMS = 8  # more at once save no more overhead
_GPU_SHARE = 1 / 4  # of all its memory: the model is there too, and chunks that are larger gain nothing
_OTHER_BYTES = 2**32  # of devices that don't report their memory
_OVERLAP_BYTES = 2**30  # from so much on, copying is worth hiding behind the solving
_MIN_CHUNKS = 4  # so that a CPU's cores have work, and a GPU something to copy meanwhile


@dataclass(frozen=True)
class ChunkPlan:
    problems: int
    columns: int
    items: int | None
    """Items copied to the device at a time, for every product again; None if they stay."""

    def bytes(self, n_items: int, width: int) -> int:
        """Peak bytes of a chunk, by the count that made the plan."""
        item_values, column_values = _values(n_items, width)
        if self.items is not None:
            item_values = self.items * _STREAMED_PER_FEATURE * width
        return _FLOAT * self.problems * (item_values + self.columns * column_values)


def plan_chunks(
    shape: tuple[int, int, int], n_columns: int, device: torch.device, memory: int | None = None, itemsize: int = _FLOAT
) -> ChunkPlan:
    """What fits: first fewer problems at once, then fewer columns, and only then streamed items.

    `shape` is (problems, items, d_model); `memory` in bytes.
    """
    n_problems, n_items, width = shape
    budget = (memory or _chunk_bytes(device)) // _FLOAT
    item_values, column_values = _values(n_items, width)
    if item_values + column_values > budget:
        half = budget // 2
        return ChunkPlan(
            1, max(1, min(n_columns, half // column_values)), max(1, half // (_STREAMED_PER_FEATURE * width))
        )
    columns = max(1, min(n_columns, (budget - item_values) // column_values))
    problems = min(n_problems, max(1, budget // (item_values + columns * column_values)))
    if device.type == "cpu":
        problems = min(problems, max(1, _CPU_VALUES // (n_items * width)), _CPU_PROBLEMS)
    if device.type == "cpu" or n_problems * n_items * width * itemsize > _OVERLAP_BYTES:
        problems = min(problems, -(-n_problems // _MIN_CHUNKS))
    return ChunkPlan(problems, columns, None)


def halved(plan: ChunkPlan, n_items: int, width: int, device: torch.device) -> ChunkPlan | None:
    """A plan for half as many problems, or half the memory of one; None if nothing can be smaller."""
    if plan.problems > 1:
        return replace(plan, problems=plan.problems // 2)
    memory = max(_FLOAT, plan.bytes(n_items, width) // 2)
    smaller = plan_chunks((1, n_items, width), plan.columns, device, memory)
    if plan.items is not None:
        smaller = ChunkPlan(1, smaller.columns, max(1, plan.items // 2))
    return None if smaller == plan else smaller


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


@runtime_checkable
class Solve(Protocol):
    """Who solves the chunks of a set of problems."""

    def __call__(
        self,
        function: Callable[..., Result],
        problems: Shaped[Tensor, "problem item d_model"],
        n_columns: int,
        arguments: tuple[Any, ...],
        device: torch.device,
        progress: Progress,
    ) -> list[Result]:
        """What `function(problems, plan, *arguments, device=…, progress=…)` gives for blocks of chunks, in order."""
        ...


def solve_here(
    function: Callable[..., Result],
    problems: Shaped[Tensor, "problem item d_model"],
    n_columns: int,
    arguments: tuple[Any, ...],
    device: torch.device,
    progress: Progress,
) -> list[Result]:
    """All chunks as one block, in this process."""
    n_problems, n_items, width = problems.shape
    plan = plan_chunks((n_problems, n_items, width), n_columns, device, None, problems.element_size())
    return [function(problems, plan, *arguments, device=device, progress=progress)]


def _solve_while_memory_lasts(
    states: Tensor, plan: ChunkPlan, device: torch.device, work: Callable[[Tensor, ChunkPlan], Result]
) -> Iterator[Result]:
    """The chunks' results, up to the first for which memory runs out."""
    chunks = states.split(plan.problems)
    with ThreadPoolExecutor(1) as pool:
        # Streamed states stay where they are; others are copied by the side, while the chunk before is solved.
        fetch = (lambda chunk: chunk) if plan.items else (lambda chunk: _fetched(chunk, device))
        coming = pool.submit(fetch, chunks[0])
        for index in range(len(chunks)):
            try:
                fetched_chunk = coming.result()
                if index + 1 < len(chunks):
                    coming = pool.submit(fetch, chunks[index + 1])
                result = work(fetched_chunk, plan)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                return
            yield result


def _shrink_plan(plan: ChunkPlan, states: Tensor, device: torch.device, notes: list[str]) -> ChunkPlan:
    free_memory()  # what the failed chunk held is unreferenced by now
    n_items, width = states.shape[1:]
    smaller = halved(plan, n_items, width, device)
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
    streamed = "" if plan.items is None else f" on {plan.items} items at a time"
    return f"{plan.problems} layers with {plan.columns} fits each{streamed}"


def _values(n_items: int, width: int) -> tuple[int, int]:
    """Numbers that a problem's items take (as they come, standardised, and once more in between), and one column's."""
    return n_items * width * 3, n_items * _PER_ITEM + width * _PER_FEATURE


def _chunk_bytes(device: torch.device) -> int:
    """What one chunk may take: a constant, or a share of a GPU's total memory, rounded down to a power of two."""
    if device.type == "cpu":
        return _CPU_CHUNK_BYTES
    if device.type != "cuda":
        return _OTHER_BYTES
    return 1 << (int(_GPU_SHARE * torch.cuda.get_device_properties(device).total_memory).bit_length() - 1)


def _fetched(chunk: Tensor, device: torch.device) -> Tensor:
    if device.type != "cuda" or chunk.device.type != "cpu":  # what is on a GPU already cannot be pinned
        return chunk.to(device)
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        copied = chunk.pin_memory().to(device, non_blocking=True)
    stream.synchronize()  # this thread waits, the solver does not
    copied.record_stream(torch.cuda.default_stream(device))
    return copied
