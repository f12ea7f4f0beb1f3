"""The numerics class: everything that changes numbers is told in words."""

from dataclasses import replace
from typing import Any

import pytest

from anchorscope.execute.executor import describe
from anchorscope.execute.numerics import WorkerFacts, code_hash, reason_to_refuse
from anchorscope.models.wrapping import wrap
from small_shards import parts_here, small_shards
from tiny_models import tiny_model

FILES = {"model.safetensors": {"sha256": "f" * 64}}


@pytest.fixture(scope="module")
def facts(tiny_llama):
    return WorkerFacts(
        "host", 1, code_hash(), replace(describe(tiny_llama), files=FILES)
    )


def other_class(facts: WorkerFacts, **changes: Any) -> WorkerFacts:
    description = facts.description
    return replace(
        facts,
        description=replace(
            description, numerics=replace(description.numerics, **changes)
        ),
    )


def test_the_same_is_admitted(facts):
    assert reason_to_refuse(facts, None, FILES) is None
    assert reason_to_refuse(facts, facts, FILES) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"device": "cpu: another"}, "device cpu: another instead of cpu: "),
        ({"dtype": "bfloat16"}, "dtype bfloat16 instead of float32"),
        ({"machine": "mips"}, "processor mips instead of"),
        ({"threads": 99}, "threads 99 instead of"),
        ({"versions": {"torch": "1.0"}}, "torch 1.0 instead of"),
    ],
)
def test_another_class_is_refused(facts, changes, words):
    assert words in reason_to_refuse(other_class(facts, **changes), facts, FILES)


def test_other_code_and_other_weights_are_refused(facts):
    description = facts.description
    identity = replace(description.identity, fingerprint="0")
    others = [
        (replace(facts, code="0"), "another version of anchorscope"),
        (
            replace(facts, description=replace(description, identity=identity)),
            "their fingerprint differs",
        ),
    ]
    for files in ({"model.safetensors": {"sha256": "0"}}, {}):
        other = replace(facts, description=replace(description, files=files))
        others.append((other, "model.safetensors differs"))
        # Those of the machine that asks count for the first worker.
        assert "model.safetensors differs" in reason_to_refuse(other, None, FILES)
    for other, words in others:
        assert words in reason_to_refuse(other, facts, FILES)


def test_a_model_that_accelerate_has_placed_in_parts_gives_the_same_bits(tiny_llama):
    """A worker may own several GPUs, over which accelerate spreads the layers. There are none here: all parts are on
    the CPU, but placed and hooked by accelerate one by one, as they would be on GPUs."""
    from accelerate import dispatch_model

    placed = tiny_model("llama")
    halves = {f"model.layers.{layer}": "cpu" for layer in range(4)}
    parts = {
        "model.embed_tokens": "cpu",
        **halves,
        "model.norm": "cpu",
        "model.rotary_emb": "cpu",
        "lm_head": "cpu",
    }
    placed = dispatch_model(placed, parts, main_device="cpu", force_hooks=True)
    assert placed.model.layers[2]._hf_hook.execution_device == "cpu", (
        "it is accelerate that placed it"
    )
    lm = wrap(placed, tiny_llama.tokenizer)
    shards = small_shards(tiny_llama, 3)
    assert parts_here(lm, shards) == parts_here(tiny_llama, shards)
