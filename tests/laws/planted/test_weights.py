"""The shipped model: it judges every kind of item, and loses what it should lose when the question is cut."""

import json

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from anchorscope.answers.generate import given_answers
from anchorscope.answers.template import build_prompts, make_template, prefix_length
from anchorscope.datasets.question import question_from_row
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.loading import load
from anchorscope.spans.locate import ItemTokens, locate_all
from anchorscope.spans.question_spans import locate_question_words
from anchorscope.stats.auc import auc
from planted_items import (
    CELLS,
    MODEL_FOLDER,
    RIGHT_VERDICT,
    WRONG_VERDICT,
    PlantedItem,
    json_lines,
    planted_items,
    the_language,
)
from train_planted_model import GOAL, HEADS, LAYERS, WIDTH, make_tokenizer


@pytest.fixture(scope="module")
def planted() -> LanguageModel:
    return load(str(MODEL_FOLDER), "float32", "cpu")


@pytest.fixture(scope="module")
def items() -> list[PlantedItem]:
    return planted_items(600, seed=11)


@pytest.fixture(scope="module")
def located(planted: LanguageModel, items: list[PlantedItem]) -> list[ItemTokens]:
    """The items' tokens, found as in a run."""
    rows = map(json.loads, json_lines(items).splitlines())
    questions = [
        question_from_row(row, "planted", number) for number, row in enumerate(rows)
    ]
    template = make_template("zero-shot", planted.tokenizer, planted.needs_bos)
    prompts = build_prompts(planted.tokenizer, questions, template)
    answers = given_answers(
        planted.tokenizer, template, prompts, [item.model_answer for item in items]
    )
    words = [locate_question_words(question) for question in questions]
    assert prefix_length(prompts) == 3  # the first token, "Question", ":"
    return [
        one
        for one in locate_all(planted.tokenizer, questions, words, prompts, answers)
        if one is not None
    ]


@torch.inference_mode()
def verdicts(
    lm: LanguageModel, located: list[ItemTokens], cut: bool
) -> NDArray[np.float32]:
    """Log-odds of "right" after each answer, by transformers itself; `cut` hides E_Q from every later position."""
    right, wrong = (
        lm.tokenizer(word, add_special_tokens=False)["input_ids"][0]
        for word in (RIGHT_VERDICT, WRONG_VERDICT)
    )
    longest = max(len(one.input_ids) for one in located)
    ids = torch.zeros(len(located), longest, dtype=torch.long)
    mask = (
        torch.full((longest, longest), float("-inf"))
        .triu(1)
        .repeat(len(located), 1, 1, 1)
    )
    for row, one in enumerate(located):
        ids[row, : len(one.input_ids)] = torch.tensor(one.input_ids)
        for key in one.question_tokens if cut else ():
            mask[row, 0, key + 1 :, key] = float("-inf")
    logits = lm.model(input_ids=ids, attention_mask=mask, use_cache=False).logits
    last = logits[
        torch.arange(len(located)),
        torch.tensor([len(one.input_ids) - 1 for one in located]),
    ]
    return (last[:, right] - last[:, wrong]).numpy()


def test_the_weights_are_small_and_of_the_size_that_the_script_trains(
    planted: LanguageModel,
) -> None:
    files = list(MODEL_FOLDER.iterdir())
    assert sum(path.stat().st_size for path in files) < 3_000_000
    assert {path.suffix for path in files} <= {".json", ".safetensors"}
    assert (planted.n_layers, planted.d_model, planted.config.num_attention_heads) == (
        LAYERS,
        WIDTH,
        HEADS,
    )


def test_the_shipped_tokenizer_is_that_of_the_language(planted: LanguageModel) -> None:
    assert (
        planted.tokenizer.get_vocab()
        == make_tokenizer(the_language().words()).get_vocab()
    )


def test_exact_tokens_are_two_words_and_the_answer_is_three(
    planted: LanguageModel, located, items
) -> None:
    for one, item in zip(located, items, strict=True):
        said = [
            planted.tokenizer.decode([one.input_ids[at]]) for at in one.question_tokens
        ]
        assert sorted(said) == sorted([item.subject, item.relation])
        assert one.rule == "metadata"
        assert one.answer_tokens == tuple(range(one.answer_start, one.answer_start + 3))
        assert one.positions == (
            one.answer_start + 2,
            one.answer_start + 2,
            one.answer_start - 1,
        )
        assert planted.tokenizer.unk_token_id not in one.input_ids


def test_every_kind_of_item_is_judged_right(
    planted: LanguageModel, located, items
) -> None:
    found = verdicts(planted, located, cut=False) > 0
    for cell in CELLS:
        inside = [
            at
            for at, one in enumerate(items)
            if (one.pathway, one.truthful) == (cell.pathway, cell.truthful)
        ]
        assert len(inside) >= 60
        assert float((found[inside] == cell.truthful).mean()) >= GOAL, cell.name


def test_cutting_the_question_takes_truth_from_question_items_alone(
    planted: LanguageModel, located, items
) -> None:
    after = verdicts(planted, located, cut=True)
    truth, pathways = (
        np.array([one.truthful for one in items]),
        np.array([one.pathway for one in items]),
    )
    areas = {
        name: auc(after[pathways == name], truth[pathways == name])
        for name in ("question", "answer", "both")
    }
    assert (
        0.4 < areas["question"] < 0.6
    )  # 200 items: three standard deviations and a half
    assert areas["answer"] > 0.99
    assert areas["both"] > 0.99
