"""All implementations compute the same: the definition of the cut, one item at a time, is the measure."""

from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

import ways
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.loading import load
from ways import KINDS, Plain, best_size, cut_mask, make
from workload import Item, Workload


@pytest.fixture(scope="module")
def wanted(tiny_llama: LanguageModel, workload: Workload) -> tuple[Tensor, Tensor]:
    implementation = Plain(tiny_llama)
    return implementation.knockout(workload), implementation.single_layer(workload)


@pytest.fixture(scope="module")
def from_disk(save_tiny) -> LanguageModel:
    """The same weights, read from a folder: TransformerLens reads the tokenizer a second time."""
    return load(str(save_tiny("llama")))


def ready(name: str, lm: LanguageModel):
    needs = KINDS[name][1]
    if needs is not None and find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed (benchmarks/requirements.txt)")
    return make(name, lm)


@pytest.mark.filterwarnings("default")  # of other libraries
@pytest.mark.parametrize("name", [name for name in KINDS if name != "plain"])
def test_every_implementation_gives_the_states_of_the_plain_loop(
    name, from_disk, workload, wanted
):
    implementation = ready(name, from_disk)
    implementation.tune(workload)
    implementation.size = 4  # one full batch and one that is not
    states = (implementation.knockout(workload), implementation.single_layer(workload))
    for found, right in zip(states, wanted, strict=True):
        assert found.shape == right.shape
        torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)


def test_the_plain_loop_is_transformers_own_pass(tiny_llama, workload, wanted):
    item, parts = workload.items[1], []
    project = tiny_llama.model.model.layers[2].self_attn.o_proj
    handle = project.register_forward_hook(
        lambda module, given, output: parts.append(output)
    )
    with torch.inference_mode():
        tiny_llama.model(input_ids=torch.tensor([item.ids]))
    handle.remove()
    torch.testing.assert_close(
        wanted[0][0, 2, 1], parts[0][0, -1], rtol=1e-5, atol=1e-5
    )


def test_a_cut_changes_all_layers_and_a_single_one_changes_from_its_layer_on(wanted):
    knockout, single = wanted
    assert ((knockout[0] - knockout[1]).abs().amax(-1) > 1e-4).all()
    for cut in range(len(single)):
        assert (single[cut, :cut] == 0).all()
        changed = (single[cut, cut:] - knockout[0, cut:]).abs().amax(-1) > 1e-6
        assert changed.all()
    # the first layer knows of no other
    torch.testing.assert_close(single[0, 0], knockout[1, 0])


def test_the_mask_is_the_definition():
    item = Item(ids=(5, 6, 7, 8), keys=(1,), label=True)
    mask = cut_mask([item], torch.float32, torch.device("cpu"))[0, 0]
    seen = {
        (query, key) for query in range(4) for key in range(4) if mask[query, key] == 0
    }
    assert seen == {(0, 0), (1, 0), (1, 1), (2, 0), (2, 2), (3, 0), (3, 2), (3, 3)}


def test_the_best_batch_size_is_the_largest_that_fits_and_pays(monkeypatch):
    clock = SimpleNamespace(now=0.0, perf_counter=lambda: clock.now)
    monkeypatch.setattr(ways, "time", clock)

    def run(size: int) -> None:
        if size > 8:
            raise MemoryError
        clock.now += 0.01  # however many items: the rate grows with the size

    size, told = best_size(torch.device("cpu"), 100, run)
    assert size == 8
    assert told.startswith("batch 8")
