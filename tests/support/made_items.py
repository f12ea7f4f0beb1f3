"""Items made by hand: tokens as a test wants them, without a dataset or a tokenizer."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from anchorscope.answers.generate import Answer
from anchorscope.answers.label import Label
from anchorscope.datasets.question import Question
from anchorscope.engine.batching import compile_threshold
from anchorscope.engine.capture import AttentionMass
from anchorscope.interventions.intervention import Setting, Writer
from anchorscope.items import Item
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.passes import Planner
from anchorscope.probes.crossfit import ProbeSet
from anchorscope.spans.locate import ItemTokens, QuestionParts
from anchorscope.stats.streams import stream


def make_item(
    ids: tuple[int, ...],
    answer_start: int,
    question_tokens: tuple[int, ...],
    prefix_length: int,
    parts: QuestionParts | None = None,
    name: str = "item",
) -> Item:
    """An item of these tokens, read at its last token, the last but one, and the one before the answer."""
    end = len(ids)
    located = ItemTokens(
        input_ids=ids,
        answer_start=answer_start,
        question_tokens=question_tokens,
        answer_tokens=tuple(range(answer_start, end)),
        positions=(end - 1, end - 2, answer_start - 1),
        rule="rules",
        parts=parts or QuestionParts((), (), ()),
        prefix_length=prefix_length,
    )
    question = Question(
        dataset="made", item_id=name, question=f"What of {name}?", answers=("so",)
    )
    answer = Answer("so", ids[answer_start:], None, "answered")
    return Item(
        question,
        answer,
        Label(truthful=True, group=0, status="used", weight=1.0),
        located,
    )


def random_items(n: int) -> list[Item]:
    """Items of different lengths behind a prefix of five tokens; every second one has a property to cut."""
    rng, items = np.random.default_rng(0), []
    for index in range(n):
        ids = (
            7,
            8,
            9,
            10,
            11,
            *rng.integers(0, 256, int(rng.integers(12, 20))).tolist(),
        )
        question = (6, 7, 8 + index % 3)
        parts = QuestionParts(question[:1], question[1:] if index % 2 else (), question)
        items.append(
            make_item(ids, len(ids) - 3, question, 5, parts, name=f"item-{index}")
        )
    return items


def random_probes(lm: LanguageModel, seed: int = 0, n_folds: int = 2) -> ProbeSet:
    generator, shape = (torch.Generator().manual_seed(seed), (n_folds, lm.n_layers))
    weight = torch.randn(*shape, lm.d_model, generator=generator)
    return ProbeSet(
        weight,
        torch.randn(shape, generator=generator),
        np.ones(shape),
        np.ones(shape),
        (),
    )


def no_model() -> Any:
    raise AssertionError("nobody was expected to need the model")


def make_mass(name: str) -> AttentionMass:
    """Made-up attention that an item's first 64 tokens receive, always the same for a name."""
    return AttentionMass(
        0, tuple(stream(0, "made mass", name).gamma(1.0, size=64).tolist())
    )


class MadeMasses(dict[str, AttentionMass]):
    """The attention of any item, made up when it is asked for."""

    def get(self, name: str, default: Any = None) -> AttentionMass:
        """Of the item of this name."""
        return make_mass(name)


def make_setting(
    positions: tuple[str, ...], writer: Callable[[], Writer] = no_model, **others: Any
) -> Setting:
    """What interventions are given: all edges, seed 0, all items, unless a test wants others."""
    made = {
        "positions": positions,
        "edges": "all",
        "seed": 0,
        "writer": writer,
        "masses": MadeMasses,
    }
    return Setting(**{**made, **others})


def planner_of(lm: LanguageModel, batch_tokens: int) -> Planner:
    windows = tuple(lm.sliding_window(layer) for layer in range(lm.n_layers))
    return Planner(
        lm.n_layers, lm.n_heads, windows, batch_tokens, compile_threshold(lm)
    )
