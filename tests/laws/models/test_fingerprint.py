"""Fingerprints see every bit of the weights, and all that a tokenizer does."""

import copy
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.models.language_model import (
    _WORDS,
    model_fingerprint,
    tensor_sums,
    tokenizer_fingerprint,
)
from tiny_models import byte_tokenizer, tiny_model

DTYPES = (
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.float64,
    torch.int64,
)


def some_values(size: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(size)
    return (torch.randn(size, generator=generator) * 50).to(dtype)


@given(st.data(), st.sampled_from(DTYPES), st.integers(1, 400))
def test_every_bit_counts(data: st.DataObject, dtype: torch.dtype, size: int) -> None:
    tensor = some_values(size, dtype)
    before = tensor_sums(tensor)
    place = data.draw(st.integers(0, size - 1))
    bit = data.draw(st.integers(0, 8 * dtype.itemsize - 1))
    flat = tensor.view(torch.uint8)
    flat[place * dtype.itemsize + bit // 8] ^= 1 << (bit % 8)
    after = tensor_sums(tensor)
    assert (before != after).all()  # seen by each of the two sums


LARGE = some_values(5 * _WORDS + 77, torch.float32)
LARGE_SUMS = tensor_sums(LARGE)


def test_values_that_change_places_are_seen() -> None:
    tensor = LARGE.clone()
    for one, other in ((0, 1), (0, _WORDS), (3, 4 * _WORDS), (7, 2 * _WORDS + 7)):
        tensor[[one, other]] = tensor[[other, one]]
        assert not torch.equal(tensor_sums(tensor), LARGE_SUMS)
        tensor[[one, other]] = tensor[[other, one]]
    assert torch.equal(tensor_sums(tensor), LARGE_SUMS)


def test_neither_layout_nor_threads_matter() -> None:
    square = LARGE[: 500 * 300].reshape(500, 300)
    shifted = torch.cat((torch.zeros(1), LARGE))[1:]  # begins in the middle of a word
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert torch.equal(tensor_sums(LARGE), LARGE_SUMS)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(tensor_sums(square.T.contiguous().T), tensor_sums(square))
    assert torch.equal(tensor_sums(shifted), LARGE_SUMS)
    assert tensor_sums(torch.empty(0)).shape == (0, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_one_bit_of_any_tensor_changes_a_models_fingerprint(dtype: torch.dtype) -> None:
    model = tiny_model("llama").to(dtype)
    seen = {model_fingerprint(model)}
    for parameter in model.parameters():
        parameter.data.view(torch.uint8).view(-1)[parameter.numel() // 2] ^= 1
        seen.add(model_fingerprint(model))
    assert len(seen) == 1 + len(list(model.parameters()))


def test_a_tokenizer_is_known_by_what_it_does() -> None:
    tokenizer = byte_tokenizer()
    first = tokenizer_fingerprint(tokenizer)
    assert tokenizer_fingerprint(byte_tokenizer()) == first
    tokenizer(
        ["a", "some words"], padding=True, truncation=True, max_length=4
    )  # leaves its mark in the backend
    assert tokenizer_fingerprint(tokenizer) == first
    tokenizer.name_or_path = "somewhere else"
    assert tokenizer_fingerprint(tokenizer) == first
    with_template, with_token, with_end = (copy.deepcopy(tokenizer) for _ in range(3))
    with_template.chat_template = "{{ messages }}"
    with_token.add_tokens(["novel"])
    with_end.eos_token = "<pad>"
    others = {
        tokenizer_fingerprint(one) for one in (with_template, with_token, with_end)
    }
    assert len(others | {first}) == 4


def test_the_same_weights_have_the_fingerprint_of_every_precision_that_holds_them() -> (
    None
):
    coarse = tiny_model("llama").to(torch.bfloat16)
    widened = copy.deepcopy(coarse).to(torch.float32)
    assert model_fingerprint(widened) != model_fingerprint(coarse)
    assert model_fingerprint(widened, torch.bfloat16) == model_fingerprint(coarse)
    assert model_fingerprint(coarse, torch.float32) == model_fingerprint(widened)
    assert model_fingerprint(coarse, torch.bfloat16) == model_fingerprint(coarse)
    with torch.no_grad():
        widened.lm_head.weight[0, 0] += 1
    assert model_fingerprint(widened, torch.bfloat16) != model_fingerprint(coarse)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_quantised_layers_count_too() -> None:
    class Packed(torch.nn.Module):
        """A layer as torch's own quantising leaves it: its state is a tuple with a quantised tensor and a number."""

        def __init__(self, values: torch.Tensor, scale: float) -> None:
            super().__init__()
            self.values, self.scale = values, scale

        def get_extra_state(self) -> Any:
            return (
                torch.quantize_per_tensor(self.values, self.scale, 0, torch.qint8),
                None,
                {"bits": 8},
            )

        def set_extra_state(self, state: Any) -> None:
            raise NotImplementedError

    def with_layer(values: torch.Tensor, scale: float) -> str:
        model = tiny_model("llama")
        model.extra = Packed(values, scale)
        return model_fingerprint(model)

    values = torch.linspace(-3, 3, 3000)
    other = values.clone()
    other[1500] += 1
    assert (
        len({with_layer(values, 0.1), with_layer(other, 0.1), with_layer(values, 0.2)})
        == 3
    )
    assert with_layer(values, 0.1) == with_layer(values.clone(), 0.1)
