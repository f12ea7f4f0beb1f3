"""Greedy answers, token by token those of transformers' own generate, whatever runs beside them."""

import copy
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from anchorscope.engine import decode as decode_module
from anchorscope.engine.decode import Decoded, Growing, choice_log_probs, decode
from anchorscope.engine.forward import NO_PREFIX
from anchorscope.errors import UserError
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.wrapping import wrap
from engine_cases import make_items, shared_prefix

ENDS = frozenset(range(2, 256, 6))
"""Tokens that end an answer in most of these tests: so many that answers differ in length."""
ROOM = 12
"""Most tokens of an answer; prompt and answer together are much longer than the sliding window of 8."""


def is_end(token: int, so_far: Sequence[int]) -> bool:
    return token in ENDS


def generated(
    lm: LanguageModel, prompt: tuple[int, ...]
) -> tuple[tuple[int, ...], bool]:
    """Tokens before the end, and whether there was one, by transformers: one prompt at a time, no padding."""
    ends = sorted(ENDS)
    ids = torch.tensor([prompt])
    out = lm.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=ROOM + 1,
        eos_token_id=ends,
        pad_token_id=258,
    )
    new = out[0, len(prompt) :].tolist()
    length = next((place for place, token in enumerate(new) if token in ends), None)
    return tuple(new[: ROOM if length is None else length]), length is not None


def answer(
    lm: LanguageModel,
    prompts: list[tuple[int, ...]],
    batches: list[list[int]] | None = None,
    shared: bool = True,
) -> list[Decoded]:
    prefix = shared_prefix(lm) if shared else NO_PREFIX
    return decode(
        lm, prompts, prefix, batches or [list(range(len(prompts)))], ROOM, is_end
    )


@pytest.mark.every_family
def test_answers_are_those_of_transformers_generate_and_their_probabilities_those_of_a_full_forward_pass(
    tiny: LanguageModel, prompts: list[tuple[int, ...]]
) -> None:
    wanted = [generated(tiny, prompt) for prompt in prompts]
    # answers of many lengths, or the law would say little
    assert len({len(ids) for ids, _ in wanted}) > 2
    own = [
        log_probs(tiny, prompt, ids)
        for prompt, (ids, _) in zip(prompts, wanted, strict=True)
    ]
    # With eager attention a row that sees nothing, as one of padding might without a prefix, becomes NaN and spreads.
    other = copy.deepcopy(tiny.model)
    other.set_attn_implementation("eager")
    for lm, shared in ((tiny, True), (wrap(other, tiny.tokenizer), False)):
        found = answer(lm, prompts, shared=shared)
        assert [(one.ids, one.finished) for one in found] == wanted
        for one, probabilities in zip(found, own, strict=True):
            torch.testing.assert_close(
                torch.tensor(one.log_probs).double(),
                probabilities,
                rtol=1e-5,
                atol=1e-5,
            )


def log_probs(
    lm: LanguageModel, prompt: tuple[int, ...], ids: tuple[int, ...]
) -> torch.Tensor:
    """Of every token of an answer, by one pass of transformers over prompt and answer."""
    with torch.no_grad():
        logits = lm.model(torch.tensor([prompt + ids]), use_cache=False).logits[0]
    every = torch.log_softmax(logits.double(), dim=-1)[len(prompt) - 1 : -1]
    return every.gather(1, torch.tensor(ids, dtype=torch.long)[:, None])[:, 0]


def test_rows_that_leave_change_no_others(
    tiny: LanguageModel, prompts: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = answer(tiny, prompts, batches=[[index] for index in range(len(prompts))])
    kept: list[int] = []
    keep = Growing.keep

    def spy(self: Growing, rows: torch.Tensor) -> None:
        kept.append(len(rows))
        keep(self, rows)

    monkeypatch.setattr(Growing, "keep", spy)
    for share in (
        0.0,
        0.25,
        2.0,
    ):  # every finished row leaves at once, some wait for others, nobody ever leaves
        monkeypatch.setattr(decode_module, "_LEAVE_SHARE", share)
        kept.clear()
        together = answer(tiny, prompts)
        assert (min(kept, default=len(prompts)) < len(prompts)) == (share < 1)
        for one, other in zip(together, alone, strict=True):
            assert (one.ids, one.finished) == (other.ids, other.finished)
            assert one.log_probs == pytest.approx(other.log_probs, abs=1e-5)


CHOICES = (3, 250, 17)
PROMPTS = [item.ids for item in make_items()]


def reference(lm: LanguageModel) -> np.ndarray:
    """The model's own forward pass, one prompt at a time."""
    with torch.inference_mode():
        logits = [
            lm.model(torch.tensor([ids])).logits[0, -1].float() for ids in PROMPTS
        ]
    return torch.stack(logits).log_softmax(dim=-1)[:, list(CHOICES)].numpy()


@pytest.mark.every_family
def test_log_probabilities_are_those_of_transformers(tiny: LanguageModel) -> None:
    found = choice_log_probs(
        tiny, PROMPTS, shared_prefix(tiny), [range(len(PROMPTS))], CHOICES
    )
    assert found.numpy() == pytest.approx(reference(tiny), abs=1e-4)


def test_a_model_that_gives_no_numbers_is_told(tiny_llama: LanguageModel) -> None:
    broken = wrap(copy.deepcopy(tiny_llama.model), tiny_llama.tokenizer, name="broken")
    with torch.no_grad():
        broken.model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(UserError, match="NaN or infinity"):
        choice_log_probs(broken, PROMPTS, NO_PREFIX, [range(len(PROMPTS))], CHOICES)
