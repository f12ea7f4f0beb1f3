"""States on their way from the device to the host, while the device goes on with the next batch."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


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
