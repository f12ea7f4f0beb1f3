"""What detectors read beside the clean run: strengthened attention, P(True), and how far samples agree."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import needs
from anchorscope.answers.generate import Answer
from anchorscope.answers.template import INSTRUCTION, Template, make_template
from anchorscope.catalogue import DETECTION_RUNS, boost_name
from anchorscope.evidence.further_runs import (
    ItemPasses,
    TruthPrompts,
    agreement_columns,
    boosted_states,
    clean_states_at,
    clusters,
    eigen_scores,
    mean_answer_states,
    p_true_template,
    same_answer,
    self_consistency,
    semantic_entropy,
    truth_prompts,
)
from anchorscope.execute.executor import LocalExecutor
from anchorscope.items import Item
from anchorscope.models.language_model import LanguageModel
from anchorscope.progress import Silent
from chat_templates import KINDS, chat
from made_items import make_item, make_setting, planner_of

PREFIX = (256, 7, 8)
ANSWERS = (1, 4, 1, 2)
"""Tokens of each item's answer."""


def items() -> list[Item]:
    generator = torch.Generator().manual_seed(3)
    found = []
    for number, n in enumerate(ANSWERS):
        own = torch.randint(0, 256, (9 + number + n,), generator=generator).tolist()
        ids = (*PREFIX, *own)
        found.append(
            make_item(ids, len(ids) - n, (4, 6), len(PREFIX), name=f"item {number}")
        )
    return found


def test_an_answer_of_one_token_has_its_clean_states(tiny_llama: LanguageModel) -> None:
    made, setting = items(), make_setting(("final", "answer_end"))
    executor, planner = LocalExecutor(lambda: tiny_llama), planner_of(tiny_llama, 60)
    passes = ItemPasses(executor, planner, made, setting, (0, 1), Silent())
    clean, found = clean_states_at(passes, "clean"), boosted_states(passes)
    assert list(found) == [name for name in DETECTION_RUNS if name.startswith("boost-")]
    assert list(found) == [
        boost_name(part, alpha)
        for part in ("question", "answer")
        for alpha in (1.0, 3.0)
    ]
    for name, states in found.items():
        assert states.shape == clean.shape == (4, len(made), 32)
        for index, n in enumerate(ANSWERS):
            moved = float((states[:, index] - clean[:, index]).abs().max())
            if n == 1 and "answer" in name:
                assert moved < 1e-5  # other neighbours, the same run
            else:
                assert moved > 1e-3, (name, index)


def residual_states(lm: LanguageModel, ids: Sequence[int]) -> torch.Tensor:
    """By transformers, [layer, token, d_model]; without the last layer, which it gives after the final norm."""
    with torch.no_grad():
        hidden = lm.model(
            torch.tensor([list(ids)]), output_hidden_states=True
        ).hidden_states
    return torch.cat(hidden[1:-1])


def test_states_of_answers_are_averaged_over_their_tokens(
    tiny_llama: LanguageModel,
) -> None:
    made, setting = items(), make_setting(("final",))
    passes = ItemPasses(
        LocalExecutor(lambda: tiny_llama),
        planner_of(tiny_llama, 60),
        made,
        setting,
        (0, 2),
        Silent(),
    )
    averaged = mean_answer_states(passes)
    for index, item in enumerate(made):
        alone = residual_states(tiny_llama, item.located.input_ids)[
            :, item.located.answer_start :
        ]
        torch.testing.assert_close(
            averaged[:-1, index], alone.mean(dim=1), atol=1e-4, rtol=1e-4
        )


def test_samples_that_say_the_same_spread_least(tiny_llama: LanguageModel) -> None:
    made, setting = items()[:2], make_setting(("final",))
    passes = ItemPasses(
        LocalExecutor(lambda: tiny_llama),
        planner_of(tiny_llama, 60),
        made,
        setting,
        (0, 1),
        Silent(),
    )
    same, other, none = (
        Answer(text, ids, None, "answered")
        for text, ids in (("a", (5,)), ("b", (9, 200)), ("", ()))
    )
    alike, spread = (
        eigen_scores(passes, [answers] * 2)
        for answers in ([same] * 3, [same, other, none])
    )
    assert (spread > alike + 1).all()
    prompt = made[0].located.input_ids[: made[0].located.answer_start]
    middle = [
        residual_states(tiny_llama, (*prompt, *answer.ids))[2, -1]
        for answer in (same, other, none)
    ]
    gram = torch.cov(torch.stack(middle).double()) + 1e-3 * torch.eye(3)
    assert spread[0] == pytest.approx(float(torch.logdet(gram)) / 3, abs=1e-3)


def test_samples_are_counted_item_by_item_the_first_five_and_all() -> None:
    made = items()[:2]  # both answer "so"
    samples = [["so", "So.", "Paris", "It is Paris", "so", *["else"] * 5], ["a"] * 10]
    found = agreement_columns(made, samples)
    assert found["self_consistency_5"].tolist() == [0.6, 0]
    assert found["self_consistency_10"].tolist() == [0.3, 0]
    shares = {"semantic_entropy_5": (0.6, 0.4), "semantic_entropy_10": (0.3, 0.2, 0.5)}
    for name, parts in shares.items():
        assert found[name] == pytest.approx(
            [-sum(part * math.log(part) for part in parts), 0]
        )


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


def asked(tokenizer: Any, template: Template) -> TruthPrompts:
    return truth_prompts(
        tokenizer,
        template,
        ["Who wrote Dracula?", "What is the capital of Peru?"],
        ["Ann", "Lima"],
    )


def test_a_tokenizer_of_bytes_compares_the_first_letters_that_differ(
    tiny_llama: LanguageModel,
) -> None:
    tokenizer = tiny_llama.tokenizer
    found = asked(tokenizer, make_template("few-shot", tokenizer))
    text = tokenizer.decode(found.ids[1])
    assert text.endswith(
        f"Question: {ASKED}\nAnswer: "
    )  # the blank that both words begin with is there already
    assert [tokenizer.decode([token]) for token in found.choices] == ["T", "F"]


@pytest.mark.embedded
@pytest.mark.parametrize("kind", ["few-shot", "zero-shot", "chat"])
def test_a_real_tokenizer_has_one_token_for_most_spellings(kind: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(needs.embedded_model())
    template = make_template(kind, tokenizer)
    found = asked(tokenizer, template)
    (usual,) = {
        template.answer_ids(tokenizer, [("Q", tokenizer("Q")["input_ids"])], ["True"])[
            0
        ][0]
    }
    assert usual in found.true
    assert {tokenizer.decode([token]).strip().lower() for token in found.true} == {
        "true"
    }
    assert {tokenizer.decode([token]).strip().lower() for token in found.false} == {
        "false"
    }
    assert len(found.true) >= 2
    assert not set(found.true) & set(found.false)
    assert (
        found.ids[1]
        == template.encode(tokenizer, [p_true_template(template).text(ASKED)])[0][0]
    )


@given(
    values=st.lists(
        st.lists(st.floats(-60, 0), min_size=5, max_size=5), min_size=1, max_size=4
    )
)
def test_spellings_are_summed(values: list[list[float]]) -> None:
    found = TruthPrompts(((1,),) * len(values), (7, 8), (9, 10, 11)).log_odds(
        np.array(values)
    )
    for row, score in zip(values, found, strict=True):
        true, false = (
            math.log(sum(map(math.exp, part))) for part in (row[:2], row[2:])
        )
        assert score == pytest.approx(true - false, abs=1e-9)


SAYINGS = st.sampled_from(
    [
        *("Paris", "paris.", "The Paris", "It is Paris", "Lyon", "lyon"),
        *("Paris, France", "42", "forty-two", "", "?", "not Paris"),
    ]
)
SAMPLES = st.lists(SAYINGS, min_size=1, max_size=10)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Paris", "It is Paris", True),
        ("Paris", "PARIS", True),
        ("Paris, France", "Paris", True),
        ("Paris", "not Paris", False),
        ("Paris", "Lyon", False),
        ("", "Paris", False),
        ("", "", True),
        ("1999", "1998", False),
        ("A", "A fine day", False),
    ],
)
def test_two_answers_say_the_same_where_the_grader_would_accept_either(
    one: str, other: str, same: bool
) -> None:
    assert same_answer(one, other) == same_answer(other, one) == same


def test_entropy_is_that_of_the_clusters() -> None:
    samples = ["Paris", "It is Paris", "Lyon", "Rome", "paris"]
    assert clusters(samples) == [0, 0, 1, 2, 0]
    assert semantic_entropy(samples) == pytest.approx(
        -(0.6 * math.log(0.6) + 0.4 * math.log(0.2))
    )


@given(samples=SAMPLES, seed=st.integers(0, 99))
def test_neither_hangs_on_the_order_of_the_samples(
    samples: list[str], seed: int
) -> None:
    mixed = random.Random(seed).sample(samples, len(samples))
    assert semantic_entropy(mixed) == pytest.approx(semantic_entropy(samples))
    assert self_consistency(samples[0], mixed) == self_consistency(samples[0], samples)


@given(samples=SAMPLES)
def test_both_stay_in_their_range_and_agree_where_all_samples_do(
    samples: list[str],
) -> None:
    entropy, share = semantic_entropy(samples), self_consistency(samples[0], samples)
    assert 0 <= entropy <= math.log(len(samples)) + 1e-12
    assert 1 / len(samples) <= share <= 1
    sizes = Counter(clusters(samples))
    assert share <= sizes[0] / len(samples)  # who is written alike is in one cluster
    assert (entropy == 0) == (len(sizes) == 1)
    doubled = semantic_entropy([*samples, *samples])
    assert doubled == pytest.approx(entropy)
