"""What the benchmark's tests share: a small workload on a tiny model, and the setting around it."""

import pytest
import torch

from anchorscope.bench import measuring
from anchorscope.bench.measuring import Setting, Workload, synthetic
from anchorscope.bench.options import Options
from anchorscope.models.language_model import LanguageModel


@pytest.fixture(scope="session")
def workload() -> Workload:
    """Six items of different lengths, so that batches are padded."""
    long, short = (synthetic(3, 6, own, 250, seed=own) for own in (17, 13))
    head = long.items[0].ids[:6]
    items = [
        type(item)((*head, *item.ids[6:]), item.keys, item.label)
        for pair in zip(long.items, short.items, strict=True)
        for item in pair
    ]
    return Workload(tuple(items), "six items", tuple(item.ids for item in items), (), 4)


@pytest.fixture
def setting(tiny_llama: LanguageModel) -> Setting:
    options = Options(
        items=6, probe_items=60, repeats=1, seconds=0.01, shared=6, own=13, new_tokens=4
    )
    return Setting(options, tiny_llama, 1e9, lambda text: None, 100.0)


@pytest.fixture(autouse=True)
def few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny products on many threads wait for each other; and the machine's peak need not be exact here."""
    torch.set_num_threads(1)
    monkeypatch.setitem(measuring._MATMUL_SIZE, "cpu", 256)
