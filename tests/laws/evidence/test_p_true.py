"""P(True) is asked in the run's own prompt, and scored by the words' own tokens."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.answers.template import INSTRUCTION, Template, make_template
from anchorscope.evidence.further_runs import TruthPrompts, p_true_template, truth_prompts
from anchorscope.models.embedded import installed_path
from anchorscope.models.language_model import LanguageModel
from chat_templates import KINDS, chat

ASKED = "What is the capital of Peru? Proposed answer: Lima. Is the proposed answer true or false?"


@pytest.mark.parametrize("kind", KINDS)
def test_a_conversation_keeps_its_turns(kind: str, tiny_llama: LanguageModel) -> None:
    template = chat(tiny_llama, KINDS[kind])
    asking = p_true_template(template)
    assert INSTRUCTION in asking.head
    assert asking.head.count("[user]") == template.head.count("[user]")
    assert asking.head.count("[assistant]True[end]") == 2
    assert asking.head.count("[assistant]False[end]") == 1
    assert asking.tail == template.tail


def made(tokenizer: Any, template: Template) -> TruthPrompts:
    return truth_prompts(tokenizer, template, ["Who wrote Dracula?", "What is the capital of Peru?"], ["Ann", "Lima"])


def test_a_tokenizer_of_bytes_compares_the_first_letters_that_differ(tiny_llama: LanguageModel) -> None:
    tokenizer = tiny_llama.tokenizer
    found = made(tokenizer, make_template("few-shot", tokenizer))
    text = tokenizer.decode(found.ids[1])
    assert text.endswith(f"Question: {ASKED}\nAnswer: ")  # the blank that both words begin with is there already
    assert [tokenizer.decode([token]) for token in found.choices] == ["T", "F"]


@pytest.mark.embedded
@pytest.mark.parametrize("kind", ["few-shot", "zero-shot", "chat"])
def test_a_real_tokenizer_has_one_token_for_most_spellings(kind: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(installed_path("smollm2-135m"))
    template = make_template(kind, tokenizer)
    found = made(tokenizer, template)
    (usual,) = {template.answer_ids(tokenizer, [("Q", tokenizer("Q")["input_ids"])], ["True"])[0][0]}
    assert usual in found.true
    assert {tokenizer.decode([token]).strip().lower() for token in found.true} == {"true"}
    assert {tokenizer.decode([token]).strip().lower() for token in found.false} == {"false"}
    assert len(found.true) >= 2
    assert not set(found.true) & set(found.false)
    assert found.ids[1] == template.encode(tokenizer, [p_true_template(template).text(ASKED)])[0][0]


@given(values=st.lists(st.lists(st.floats(-60, 0), min_size=5, max_size=5), min_size=1, max_size=4))
def test_spellings_are_summed(values: list[list[float]]) -> None:
    found = TruthPrompts(((1,),) * len(values), (7, 8), (9, 10, 11)).log_odds(np.array(values))
    for row, score in zip(values, found, strict=True):
        true, false = (math.log(sum(map(math.exp, part))) for part in (row[:2], row[2:]))
        assert score == pytest.approx(true - false, abs=1e-9)
