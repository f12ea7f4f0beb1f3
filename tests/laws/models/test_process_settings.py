"""Settings of the whole process come back as they were, however many threads hold them, in whichever order."""

import gc
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pytest
import torch

from anchorscope.models.process_settings import (
    attention_kernels,
    few_collections,
    product_kernels,
    quiet_transformers,
    threads,
    true_float32,
)


def cudnn() -> bool:
    return torch.backends.cuda.cudnn_sdp_enabled()


def verbosity() -> int:
    from transformers.utils import logging

    return logging.get_verbosity()


SETTINGS: dict[
    str, tuple[Callable[[], AbstractContextManager[Any]], Callable[[], Any], Any]
] = {
    "float32": (true_float32, torch.get_float32_matmul_precision, "highest"),
    "garbage": (few_collections, lambda: gc.get_threshold()[0], 100_000),
    "kernels": (attention_kernels, cudnn, False),
    "quiet": (quiet_transformers, verbosity, 40),
    "threads": (partial(threads, 1), torch.get_num_threads, 1),
}


@pytest.fixture(params=sorted(SETTINGS))
def setting(request: pytest.FixtureRequest) -> Any:
    """A setting, how it is read, what it is while it is held; another value is set before."""
    before = torch.get_float32_matmul_precision(), torch.get_num_threads()
    torch.set_float32_matmul_precision("medium")
    torch.set_num_threads(3)
    yield SETTINGS[request.param]
    torch.set_float32_matmul_precision(before[0])
    torch.set_num_threads(before[1])


def test_a_setting_is_held_and_put_back(setting: Any) -> None:
    hold, read, held = setting
    before = read()
    assert before != held
    with hold():
        assert read() == held
        with hold():
            assert read() == held
        assert read() == held
    assert read() == before
    with pytest.raises(KeyboardInterrupt), hold():
        raise KeyboardInterrupt
    assert read() == before


def test_the_last_thread_puts_it_back(setting: Any) -> None:
    hold, read, held = setting
    before, inside, leave, seen = read(), threading.Event(), threading.Event(), []

    def other() -> None:
        with hold():
            inside.set()
            leave.wait(30)
            seen.append(read())

    thread = threading.Thread(target=other)
    with hold():
        thread.start()
        inside.wait(30)
    leave.set()  # only now, when the first holder has gone
    thread.join()
    assert seen == [held]
    assert read() == before
    fresh: list[Any] = []
    thread = threading.Thread(target=lambda: fresh.append(read()))
    thread.start()
    thread.join()
    assert fresh == [before]


def test_a_model_in_bfloat16_leaves_the_kernels_of_later_models_as_they_were() -> None:
    half = torch.ones(64, 64, dtype=torch.bfloat16)
    for before in (True, False):  # a user's own choice comes back too
        torch.backends.mkldnn.set_flags(before)
        with product_kernels():
            # switches them off on a processor without bfloat16
            torch.nn.functional.linear(half, half)
            torch.backends.mkldnn.set_flags(False)  # as there, on all others
        assert torch.backends.mkldnn.enabled == before
