"""Memory of devices: how a lack of it shows (each has its own way to say so), and how tensors come to the host."""

import gc
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_WORDS = ("not enough memory", "can't allocate memory", "out of memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory did not suffice; torch tells it on the CPU with a plain RuntimeError."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _WORDS)


def free_memory() -> None:
    """Gives back what is held by nobody any more, to try again with less."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class ToHost:
    """Hands over each batch's tensor in host memory, one batch late: by then its copy is done."""

    def __init__(self, receive: Callable[[Any, Tensor], None]) -> None:
        self.receive = receive
        self.waiting: tuple[Any, Tensor, Tensor, torch.cuda.Event | None] | None = None

    def put(self, key: Any, states: Tensor) -> None:
        """Starts the copy; `key` comes back with it."""
        if states.is_cuda:
            copy = torch.empty(states.shape, dtype=states.dtype, pin_memory=True)
            copy.copy_(states, non_blocking=True)
            event = torch.cuda.Event()
            event.record(torch.cuda.current_stream(states.device))  # the copy's own, whichever GPU it is on
            self.finish()
            self.waiting = (key, copy, states, event)  # the states stay alive until they are copied
        else:
            self.receive(key, states)

    def finish(self) -> None:
        """Waits for the copy under way and hands it over."""
        if self.waiting is not None:
            key, copy, _, event = self.waiting
            assert event is not None
            event.synchronize()
            self.receive(key, copy)
            self.waiting = None  # only now: what could not be received is not lost
