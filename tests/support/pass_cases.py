"""Every kind of pass, small, on a model whose numbers hang on what runs together; and what a pass gave, as bits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from anchorscope.answers.generate import LINE
from anchorscope.engine.decode import Sampling
from anchorscope.engine.sequences import (
    CLEAN,
    SITES,
    Cut,
    Patch,
    TokenSequence,
    Variant,
)
from anchorscope.execute.executor import Executor
from anchorscope.execute.run_passes import (
    run_choices,
    run_decoding,
    run_saliency,
    run_states,
)
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.wrapping import wrap
from anchorscope.plan.passes import (
    DecodePass,
    OutOfFoldProbes,
    SaliencyPass,
    StatesPass,
    plan_choices,
    plan_decoding,
    plan_saliency,
)
from anchorscope.progress import Progress, Silent
from made_items import planner_of, random_probes
from tiny_models import byte_tokenizer, tiny_model

N, N_FOLDS = 14, 3
PREFIX = (7, 8, 9, 10, 11)
FIRST = len(PREFIX)


@pytest.fixture(scope="session")
def sensitive() -> LanguageModel:
    """A tiny model with a wide feed-forward part: so many numbers are summed in another order where few rows run
    together. Narrower models give the same bits however they are batched, and would show nothing. Read only."""
    return wrap(
        tiny_model("llama", intermediate_size=1536),
        byte_tokenizer(),
        name="tiny sensitive",
    )


def short_sequences(n: int = N) -> list[TokenSequence]:
    """Four to eight tokens of their own: one alone is few rows in every product."""
    rng = np.random.default_rng(0)
    lengths = [FIRST + int(own) for own in rng.integers(4, 9, n)]
    return [
        TokenSequence(
            (*PREFIX, *rng.integers(0, 256, length - FIRST).tolist()),
            length - 2,
            (length - 1, length - 2),
        )
        for length in lengths
    ]


def make_probes(lm: LanguageModel, n: int = N) -> OutOfFoldProbes:
    """A probe for every site of two positions."""
    sets = tuple(
        tuple(
            random_probes(lm, 10 * position + site, N_FOLDS)
            for site in range(len(SITES))
        )
        for position in range(2)
    )
    return OutOfFoldProbes(sets, np.arange(n) % N_FOLDS)


@dataclass(frozen=True)
class Case:
    plan: Callable[[LanguageModel, int], Any]
    """With so many tokens together."""
    run: Callable[[Executor, Any, Progress], Any]
    tokens: int
    """That give several batches, all but the last with more than one item."""

    def bits(self, executor: Executor, work: Any) -> Any:
        """Everything that a pass gives."""
        return bits(self.run(executor, work, Silent()))


def _states(lm: LanguageModel, tokens: int) -> StatesPass:
    cuts = [
        Variant({item: Cut((FIRST, FIRST + item % 2)) for item in range(N)}),
        Variant(
            {item: Cut((FIRST,), heads=(1,)) for item in range(0, N, 3)}, range(2, 4)
        ),
    ]
    work = planner_of(lm, tokens).states(
        "states", short_sequences(), PREFIX, [CLEAN, *cuts]
    )
    return replace(
        work, probes=make_probes(lm), keep=(((1, 2), (0, 1)), ((0, 0),)), log_probs=True
    )


def _answer_stats(lm: LanguageModel, tokens: int) -> StatesPass:
    work = replace(_states(lm, tokens), answer_stats=True, log_probs=False, keep=())
    assert work.probes is not None
    return replace(work, probes=replace(work.probes, only=(1, 2)))


def _patches(lm: LanguageModel, tokens: int) -> StatesPass:
    """Every item takes states from one far away, which runs in another batch, at the first layer and at the third."""

    def patched(layer: int, by: int) -> Variant:
        at = (FIRST, FIRST + 1)
        patches = {
            item: Patch(at, (item + by) % N, (FIRST + 1, FIRST + 2))
            for item in range(0, N, 1 + by % 2)
        }
        return Variant(layers=range(layer, layer + 1), patches=patches)

    variants = [CLEAN, patched(2, 7), patched(0, 10)]
    work = planner_of(lm, tokens).states("patches", short_sequences(), PREFIX, variants)
    return replace(work, keep=(((0, 2), (1, 0)),) * 3, log_probs=True)


def _random_weights(lm: LanguageModel, tokens: int) -> StatesPass:
    work = planner_of(lm, tokens).states("random weights", short_sequences(), PREFIX)
    return replace(work, keep=(((0, 2), (1, 1)),), random_weights=True)


def _few_layers(lm: LanguageModel, tokens: int) -> StatesPass:
    work = planner_of(lm, tokens).states("few layers", short_sequences(), PREFIX)
    return replace(work, keep=(((0, 2),),), n_layers=2)


def _attention(lm: LanguageModel, tokens: int) -> StatesPass:
    return replace(
        planner_of(lm, tokens).states("attention", short_sequences(), PREFIX),
        attention="all",
    )


def _greedy(lm: LanguageModel, tokens: int) -> DecodePass:
    return plan_decoding(
        "answers", [one.ids for one in short_sequences()], PREFIX, 6, LINE, tokens
    )


def _sampled(lm: LanguageModel, tokens: int) -> DecodePass:
    prompts = [
        one.ids for one in short_sequences(N // 2) for _ in range(2)
    ]  # each twice, side by side
    sampling = Sampling(
        np.arange(1, N + 1, dtype=np.uint64) * np.uint64(2**40 + 17), 1.3, 0.9
    )
    return plan_decoding("sampled answers", prompts, PREFIX, 6, LINE, tokens, sampling)


def _saliency(lm: LanguageModel, tokens: int) -> SaliencyPass:
    sequences = [replace(one, read_at=one.read_at[:1]) for one in short_sequences()]
    generator = torch.Generator().manual_seed(3)
    weight, bias = (
        torch.randn(N, lm.d_model, generator=generator),
        torch.randn(N, generator=generator),
    )
    keys = {
        "question": tuple((FIRST, FIRST + item % 3) for item in range(N)),
        "first": ((FIRST,),) * N,
    }
    layers = [3 - item % 2 for item in range(N)]
    return plan_saliency(
        planner_of(lm, tokens), sequences, PREFIX, keys, "mlp", layers, weight, bias
    )


CASES = {
    "states": Case(_states, run_states, 100),
    "answer statistics": Case(_answer_stats, run_states, 100),
    "patches": Case(_patches, run_states, 70),
    "random weights": Case(_random_weights, run_states, 40),
    "few layers": Case(_few_layers, run_states, 40),
    "attention": Case(_attention, run_states, 40),
    "choices": Case(
        lambda lm, tokens: plan_choices(
            "choices", [one.ids for one in short_sequences()], (3, 250, 17), tokens
        ),
        run_choices,
        40,
    ),
    "greedy": Case(_greedy, run_decoding, 60),
    "sampled": Case(_sampled, run_decoding, 60),
    "saliency": Case(_saliency, run_saliency, 40),
}


def with_batches(work: Any, batches: Sequence[tuple[int, ...]]) -> Any:
    """The same pass, its items divided otherwise."""
    return replace(work, batches=tuple(batches))


def bits(value: Any) -> Any:
    """Plain data that are equal where every number of two values has the same bits."""
    if isinstance(value, torch.Tensor):
        return (
            "tensor",
            str(value.dtype),
            tuple(value.shape),
            value.contiguous().numpy().tobytes(),
        )
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.str, value.shape, value.tobytes())
    if is_dataclass(value) and not isinstance(value, type):
        return (
            type(value).__name__,
            *(
                (field.name, bits(getattr(value, field.name)))
                for field in fields(value)
            ),
        )
    if isinstance(value, pl.DataFrame):
        return ("frame", str(value.schema), bits(value.to_dict(as_series=False)))
    if isinstance(value, Mapping):
        return tuple((key, bits(value[key])) for key in sorted(value))
    if isinstance(value, list | tuple):
        return tuple(bits(one) for one in value)
    return value.hex() if isinstance(value, float) else value
