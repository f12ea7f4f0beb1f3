"""The user's model is theirs: whatever runs, in whichever thread, interrupted or not, it computes what it did."""

import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from accelerate import dispatch_model
from accelerate.hooks import AlignDevicesHook, add_hook_to_module
from peft import LoraConfig, get_peft_model
from torch import Tensor

from anchorscope.engine.capture import capture
from anchorscope.engine.forward import NO_PREFIX, compute_prefix
from anchorscope.engine.saliency import saliency
from anchorscope.engine.sequences import CLEAN, Cut, TokenSequence, Variant
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.wrapping import wrap
from tiny_models import byte_tokenizer, tiny_model

ITEMS = [
    TokenSequence((256, *range(40, 60), seed), answer_start=18, read_at=(15, 20, 21))
    for seed in range(3)
]
WAYS = [CLEAN, Variant({item: Cut((8, 9, 10)) for item in range(len(ITEMS))})]
IDS = torch.tensor([ITEMS[0].ids])


def passes(lm: LanguageModel, meanwhile: Callable[[], None] = lambda: None) -> Tensor:
    """States of all items, clean and cut; `meanwhile` is called while they are handed over."""
    found = {}

    def receive(variant: int, batch: list[int], states: Tensor) -> None:
        meanwhile()
        found.update(
            {
                (variant, item): one.clone()
                for item, one in zip(batch, states, strict=True)
            }
        )

    capture(lm, ITEMS, NO_PREFIX, [[0, 1, 2]], receive, WAYS)
    return torch.stack([found[key] for key in sorted(found)])


def is_moved(module: Any) -> Any:
    """A block as accelerate leaves it: its forward is replaced, and the new one holds on to the block itself."""
    return add_hook_to_module(
        module, AlignDevicesHook(execution_device="cpu", io_same_device=True)
    )


def with_hooks(model: Any) -> Any:
    for block in model.model.layers:
        for part in (block, block.self_attn, block.mlp, block.mlp.up_proj):
            is_moved(part)
    return model


def with_adapter(model: Any) -> Any:
    return get_peft_model(
        model,
        LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False),
    )


def dispatched(model: Any) -> Any:
    return dispatch_model(model, {"": "cpu"}, main_device="cpu", force_hooks=True)


GROWING = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
"""A rotary embedding that grows with the sequence: in the twin only."""
KINDS: dict[str, Callable[[], Any]] = {
    "eager": lambda: tiny_model("llama", attn_implementation="eager"),
    "sdpa": lambda: tiny_model("gemma2"),
    "training": lambda: tiny_model("gpt2").train(),
    "growing": lambda: tiny_model(
        "llama", max_position_embeddings=16, rope_parameters=GROWING
    ),
    "tied": lambda: tiny_model("llama", tie_word_embeddings=True),
    "hooks": lambda: with_hooks(tiny_model("llama")),
    "dispatched": lambda: dispatched(tiny_model("llama")),
    "adapter": lambda: with_adapter(tiny_model("llama")),
}


@pytest.fixture(params=sorted(KINDS))
def model(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]()


def logits(model: Any) -> Tensor:
    torch.manual_seed(0)  # a model in training mode draws its dropout
    with torch.no_grad():
        return model(IDS, use_cache=False).logits


def everything(model: Any) -> list[Any]:
    """All that could be changed in a model, by value where it can be, else by identity."""
    plain = (bool, int, float, str, type(None))
    told: list[Any] = [
        model.config.to_json_string(use_diff=False),
        model.config._attn_implementation,
    ]
    for name, module in model.named_modules():
        held = {
            key: value if isinstance(value, plain) else id(value)
            for key, value in vars(module).items()
        }
        hooks = [
            len(value)
            for key, value in sorted(vars(module).items())
            if key.endswith("_hooks")
        ]
        told.append(
            (
                name,
                id(module),
                held,
                hooks,
                [id(one) for one in module._modules.values()],
            )
        )
    told += [
        (id(one), one.requires_grad, one._version, one.grad is None)
        for one in model.parameters()
    ]
    return [*told, *((id(one), one._version) for one in model.buffers())]


def test_nothing_is_written_to_the_users_model(model: Any) -> None:
    logits(model)  # transformers itself leaves its marks in the first pass
    before, kept = logits(model), everything(model)
    lm = wrap(model, byte_tokenizer())
    assert everything(model) == kept

    def look() -> None:
        assert torch.equal(logits(model), before)
        with ThreadPoolExecutor(1) as other:
            assert torch.equal(other.submit(logits, model).result(), before)

    passes(lm, look)
    compute_prefix(lm, ITEMS[0].ids[:5])
    keys, tops = {"first": [(8,)] * 3}, [lm.n_layers - 1] * 3
    saliency(
        lm,
        ITEMS,
        NO_PREFIX,
        keys,
        lambda batch, states: states[:, -1, 2, -1].pow(2).sum(-1),
        tops,
        [[0, 1, 2]],
    )
    lm.fingerprint()
    assert torch.equal(logits(model), before)
    assert everything(model) == kept


def test_a_pass_that_is_interrupted_leaves_no_trace(model: Any) -> None:
    logits(model)
    before, kept, lm = logits(model), everything(model), wrap(model, byte_tokenizer())
    wanted = passes(lm)

    def stop(*given: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        passes(lm, stop)
    # in the middle of a block
    hook = getattr(lm.layers[2], lm.family.mlp).register_forward_pre_hook(stop)
    with pytest.raises(KeyboardInterrupt):
        passes(lm)
    hook.remove()
    assert torch.equal(logits(model), before)
    assert everything(model) == kept
    assert torch.equal(passes(lm), wanted)


@pytest.mark.parametrize("kind", ["llama", "gemma3_text", "qwen3_moe"])
def test_many_threads_give_what_one_gives(kind: str) -> None:
    model = tiny_model(kind)
    lm, before = wrap(model, byte_tokenizer()), logits(model)
    wanted, start = passes(lm), threading.Barrier(4)

    def work(_: int) -> list[Tensor]:
        start.wait()
        return [passes(lm) for _ in range(10)]

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(work, range(4)):
            for one in found:
                torch.testing.assert_close(one, wanted, rtol=1e-5, atol=1e-5)
    assert torch.equal(logits(model), before)


def test_a_model_in_training_is_run_without_dropout() -> None:
    model = tiny_model("gpt2", resid_pdrop=0.5, attn_pdrop=0.5, embd_pdrop=0.5)
    calm = passes(wrap(copy.deepcopy(model), byte_tokenizer()))
    torch.testing.assert_close(
        passes(wrap(model.train(), byte_tokenizer())), calm, rtol=1e-5, atol=1e-5
    )
    assert model.training
    assert all(module.training for module in model.modules())


def test_weights_that_change_later_are_seen() -> None:
    model = tiny_model("llama")
    lm = wrap(model, byte_tokenizer())
    before = passes(lm)
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[0] += 1  # trained on
    trained = passes(lm)
    # replaced
    model.model.layers[2].mlp.up_proj.weight = torch.nn.Parameter(torch.zeros(48, 32))
    replaced = passes(lm)
    assert not torch.equal(before, trained)
    assert not torch.equal(trained, replaced)
    assert lm.twin.lm_head.weight is model.lm_head.weight


def test_a_forward_of_the_users_own_runs_on_the_twin() -> None:
    model = tiny_model("llama")
    part = model.model.layers[0].mlp

    def doubled(self: Any, stream: Tensor) -> Tensor:
        assert self is not part or not torch.is_inference_mode_enabled()
        return 2 * type(self).forward(self, stream)

    part.forward = doubled.__get__(part)
    # the self-check compares with the model's own pass, doubled too
    lm = wrap(model, byte_tokenizer())
    assert lm.layers[0].mlp.forward.__self__ is lm.layers[0].mlp
    assert (
        passes(lm) - passes(wrap(tiny_model("llama"), byte_tokenizer()))
    ).abs().max() > 1e-3
