"""How a lack of memory shows: every device has its own way to say so."""

import torch

_WORDS = ("not enough memory", "can't allocate memory", "out of memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory did not suffice; torch tells it on the CPU with a plain RuntimeError."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _WORDS)
