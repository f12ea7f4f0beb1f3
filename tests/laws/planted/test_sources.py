"""The planted model that reads sources: it goes by those that it should, and `context_used` shows it."""

import numpy as np
import pytest

from anchorscope.answers.template import build_prompts, make_template
from anchorscope.datasets.question import Question, question_from_row
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.loading import load
from planted_items import the_language
from repo import SUPPORT
from train_source_model import (
    CONTEXT,
    FOLLOWED,
    IGNORED,
    KINDS,
    MARKS,
    THINKING,
    make_tokenizer,
    source_rows,
    source_words,
)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return load(str(SUPPORT / "source-model"), "float32", "cpu")


def asked(name: str, n: int = 240) -> list[Question]:
    return [
        question_from_row(row, "planted", number)
        for number, row in enumerate(source_rows(n, name))
    ]


def test_items_are_balanced_and_every_word_is_known(model: LanguageModel) -> None:
    facts = the_language().facts
    rows = source_rows(600, CONTEXT)
    assert len({(row["question"], row["context"]) for row in rows}) == len(rows)
    for kind in KINDS:
        mine = [row for row in rows if row["kind"] == kind]
        assert len(mine) == 200
        assert sum(row["truthful"] for row in mine) == 100
        by_facts = [
            row["answers"] == [facts[row["subject"], row["relation"]]] for row in mine
        ]
        assert not any(by_facts) if kind == FOLLOWED else all(by_facts)
    ignored = [row for row in rows if row["kind"] == IGNORED and row["truthful"]]
    assert (
        30 < sum(row["model_answer"] in row["context"].split() for row in ignored) < 70
    )
    assert (
        model.tokenizer.get_vocab() == make_tokenizer(source_words(), MARKS).get_vocab()
    )
    template = make_template("zero-shot", model.tokenizer, model.needs_bos)
    for prompt in build_prompts(
        model.tokenizer, [*asked(CONTEXT), *asked(THINKING)], template
    ):
        assert model.tokenizer.unk_token_id not in prompt.ids


@pytest.mark.parametrize("name", [CONTEXT, THINKING])
def test_the_model_says_what_a_followed_source_says_and_else_the_fact(
    model: LanguageModel, name: str
) -> None:
    questions = asked(name)
    template = make_template("zero-shot", model.tokenizer, model.needs_bos)
    right = []
    for question, prompt in zip(
        questions, build_prompts(model.tokenizer, questions, template), strict=True
    ):
        ids = (
            model.model(model.model.dummy_inputs["input_ids"].new_tensor([prompt.ids]))
            .logits[0, -1]
            .argmax()
        )
        right.append(model.tokenizer.decode([int(ids)]).strip() == question.answers[0])
    assert np.mean(right) >= 0.97
