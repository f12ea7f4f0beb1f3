"""How a lack of memory shows (every device has its own way to say so), and what to do before trying with less."""

import gc

import torch

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
