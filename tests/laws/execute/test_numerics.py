"""The numerics class: the same model gives the same canary, and everything that changes numbers is told in words."""

from dataclasses import replace

import pytest
import torch

from anchorscope.execute import numerics
from anchorscope.execute.numerics import NumericsClass, canary, differences, hello, refuse
from anchorscope.execute.worker_job import WorkerJob
from anchorscope.models.wrapping import wrap
from small_shards import hashes_here, packed_shards, small_shards
from tiny_models import build_tiny, tiny_model


@pytest.fixture(scope="module")
def told(tiny_llama):
    return hello(tiny_llama, WorkerJob("no such model", threads=3))


@pytest.mark.every_family
def test_the_canary_is_the_same_every_time(tiny):
    assert canary(tiny) == canary(tiny)


def test_the_canary_sees_one_weight(tiny_llama):
    other = build_tiny("llama")
    assert canary(other) == canary(tiny_llama)
    with torch.no_grad():
        other.model.model.layers[3].mlp.down_proj.weight[0, 0] += 0.01
    assert canary(wrap(other.model, other.tokenizer)) != canary(tiny_llama)


def test_the_canary_sees_a_cut_that_is_not_made(tiny_llama, monkeypatch):
    before = canary(tiny_llama)
    sequences, cuts = numerics._canary_sequences(260)
    uncut = {item: replace(cut, alpha=0.0) for item, cut in cuts.items()}
    monkeypatch.setattr(numerics, "_canary_sequences", lambda vocabulary: (sequences, uncut))
    assert canary(tiny_llama) != before


def test_the_same_is_admitted(told):
    assert refuse(told, told, mixed=False) is None
    assert differences(NumericsClass.of(told), NumericsClass.of(told)) == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"device": "cpu: another"}, "device cpu: another instead of cpu: "),
        ({"dtype": "bfloat16"}, "dtype bfloat16 instead of float32"),
        ({"machine": "mips"}, "processor mips instead of"),
        ({"threads": 2}, "2 threads instead of 3"),
        ({"versions": {"torch": "1.0"}}, "torch 1.0 instead of"),
        ({"versions": None}, "torch None instead of"),
        ({"canary": "0"}, "the same small batch gives other bits"),
    ],
)
def test_another_class_is_refused_unless_mixed_ones_are_allowed(told, changes, words):
    other = {**told, **changes}
    assert words in refuse(other, told, mixed=False)
    assert "--mixed" in refuse(other, told, mixed=False)
    assert refuse(other, told, mixed=True) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"anchorscope": "9.9"}, "another version of anchorscope 9.9 instead of"),
        ({"code": "0"}, "another code of anchorscope"),
        ({"weights": {"model.safetensors": "0"}}, "model.safetensors is not expected"),
        ({"weights": None}, "it does not say which"),
        ({"fingerprint": "0"}, "their fingerprint differs"),
    ],
)
def test_other_code_and_other_weights_are_always_refused(told, changes, words):
    for mixed in (False, True):
        assert words in refuse({**told, **changes}, told, mixed)


def test_a_model_that_accelerate_has_placed_in_parts_gives_the_same_bits(tiny_llama):
    """A worker may own several GPUs, over which accelerate spreads the layers. There are none here: all parts are on
    the CPU, but placed and hooked by accelerate one by one, as they would be on GPUs."""
    from accelerate import dispatch_model

    placed = tiny_model("llama")
    halves = {f"model.layers.{layer}": "cpu" for layer in range(4)}
    parts = {"model.embed_tokens": "cpu", **halves, "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu"}
    placed = dispatch_model(placed, parts, main_device="cpu", force_hooks=True)
    assert placed.model.layers[2]._hf_hook.execution_device == "cpu", "it is accelerate that placed it"
    lm = wrap(placed, tiny_llama.tokenizer)
    packed = packed_shards(small_shards(tiny_llama, 3))
    assert canary(lm) == canary(tiny_llama)
    assert hashes_here(lm, packed) == hashes_here(tiny_llama, packed)
