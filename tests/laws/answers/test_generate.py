"""Answers: greedy, up to the first token that holds a line break or ends the text; or the user's own."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from anchorscope.answers.generate import Answer
from anchorscope.answers.template import FEW_SHOT_TEMPLATE, build_prompts
from anchorscope.datasets.question import Question
from anchorscope.execute.executor import LocalExecutor
from anchorscope.execute.run_passes import run_answers
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.wrapping import wrap
from anchorscope.plan.decoding import plan_answers
from anchorscope.progress import Silent

PLACES = ("Ada", "Bo", "Cix", "Dun", "Er", "Fu")
TEXTS = [f"What is the {kind} of {place}?" for kind in ("capital", "sport") for place in PLACES]
ROOM = 12
SPECIAL = {256, 257, 258}
"""The talker's special tokens, which end an answer."""


@pytest.fixture(scope="module")
def talker(tiny_llama: LanguageModel) -> LanguageModel:
    """A tiny model that says different things, with a vocabulary in which many tokens end in a line break."""
    letters = [chr(code) for code in range(33, 127)]
    words = [*letters, "Ġ", "Ċ", *(f"{letter}Ċ" for letter in letters[:20]), *(f"Ġ{letter}" for letter in letters)]
    places = np.random.default_rng(0).permutation(256).tolist()
    tokenizer = Tokenizer(models.BPE(vocab=dict(zip(words, places, strict=False)), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>", "<pad>"])
    model = deepcopy(tiny_llama.model)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(2)  # the tiny model itself says the same to every question
    return wrap(model, PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", pad_token="<pad>"))


@pytest.fixture(scope="module")
def talked(talker: LanguageModel) -> list[Answer]:
    """Its answers to all questions."""
    return answered(talker, questions_of(TEXTS))


def questions_of(texts: list[str], given: dict[int, str] | None = None) -> list[Question]:
    return [Question("d", str(i), text, ("x",), model_answer=(given or {}).get(i)) for i, text in enumerate(texts)]


def answered(lm: LanguageModel, questions: list[Question], room: int = ROOM) -> list[Answer]:
    work = plan_answers(questions, lm.tokenizer, FEW_SHOT_TEMPLATE, room, 600, lm.context)
    return run_answers(LocalExecutor(lambda: lm), work, Silent())


def plain_greedy(
    lm: LanguageModel, prompt: tuple[int, ...], ends: set[int], room: int
) -> tuple[list[int], list[float], bool]:
    """The same by transformers' own forward pass, one prompt at a time, without any cache."""
    ids, log_probs = list(prompt), []
    for _ in range(room + 1):
        with torch.no_grad():
            best, token = torch.log_softmax(lm.model(torch.tensor([ids])).logits[0, -1].float(), -1).max(-1)
        if int(token) in ends or "\n" in lm.tokenizer.decode([int(token)]):
            return ids[len(prompt) :], log_probs, True
        ids.append(int(token))
        log_probs.append(float(best))
    return ids[len(prompt) : len(prompt) + room], log_probs[:room], False


def test_an_answer_ends_before_the_first_token_that_holds_a_line_break(
    talker: LanguageModel, talked: list[Answer]
) -> None:
    lengths = set()
    for prompt, answer in zip(build_prompts(talker.tokenizer, questions_of(TEXTS)), talked, strict=True):
        ids, log_probs, finished = plain_greedy(talker, prompt.ids, SPECIAL, ROOM)
        assert list(answer.ids) == ids
        assert answer.log_probs == pytest.approx(log_probs, abs=1e-3)
        text = talker.tokenizer.decode(ids).strip()
        assert answer.text == text
        assert "\n" not in text
        assert answer.status == ("truncated" if not finished else "answered" if text else "empty")
        lengths.add((len(ids), finished))
    # The examples must hold what the test is about: answers that end early, later, and not in time.
    assert {finished for _, finished in lengths} == {True, False}
    assert len({length for length, finished in lengths if finished}) > 2


def test_every_end_token_of_the_model_ends_an_answer(
    talker: LanguageModel, talked: list[Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    end = next(answer.ids[1] for answer in talked if len(answer.ids) > 2)
    monkeypatch.setattr(talker.model.generation_config, "eos_token_id", [257, end])
    for answer, before in zip(answered(talker, questions_of(TEXTS)), talked, strict=True):
        if end in before.ids:
            assert answer.ids == before.ids[: before.ids.index(end)]
            assert answer.status in ("answered", "empty")
        else:
            assert (answer.ids, answer.status) == (before.ids, before.status)


def test_an_answer_as_long_as_the_room_is_truncated_only_if_it_did_not_end(
    talker: LanguageModel, talked: list[Answer]
) -> None:
    index = next(i for i, answer in enumerate(talked) if answer.status == "answered" and len(answer.ids) > 2)
    whole = talked[index].ids
    exact = answered(talker, questions_of(TEXTS), room=len(whole))[index]
    assert (exact.ids, exact.status) == (whole, "answered")
    short = answered(talker, questions_of(TEXTS), room=len(whole) - 1)[index]
    assert (short.ids, short.status) == (whole[:-1], "truncated")


def test_answers_come_in_the_order_of_the_questions(talker: LanguageModel, talked: list[Answer]) -> None:
    order = np.random.default_rng(0).permutation(len(TEXTS))
    shuffled = answered(talker, questions_of([TEXTS[index] for index in order]))
    assert [answer.ids for answer in shuffled] == [talked[index].ids for index in order]
    assert len({answer.ids for answer in talked}) > 5


def test_an_answer_that_is_given_is_tokenised_and_not_generated(tiny_llama: LanguageModel) -> None:
    def never() -> LanguageModel:
        raise AssertionError("the model was asked")

    questions = questions_of(["Who?"], {0: " Jane Austen "})
    work = plan_answers(questions, tiny_llama.tokenizer, FEW_SHOT_TEMPLATE, ROOM, 600, tiny_llama.context)
    (answer,) = run_answers(LocalExecutor(never), work, Silent())
    assert answer.text == "Jane Austen"
    assert answer.ids == tuple(tiny_llama.tokenizer(" Jane Austen", add_special_tokens=False)["input_ids"])
    assert answer.log_probs is None
    assert answer.status == "answered"


def test_only_questions_without_an_answer_are_generated(talker: LanguageModel, talked: list[Answer]) -> None:
    mixed = answered(talker, questions_of(TEXTS, {1: "Paris", 3: "Oslo"}))
    assert [mixed[1].text, mixed[3].text] == ["Paris", "Oslo"]
    assert [mixed[1].log_probs, mixed[3].log_probs] == [None, None]
    for index in set(range(len(TEXTS))) - {1, 3}:
        assert mixed[index].ids == talked[index].ids
        assert mixed[index].log_probs == pytest.approx(talked[index].log_probs, abs=1e-3)


def test_a_given_answer_without_text_is_empty(tiny_llama: LanguageModel) -> None:
    assert [answered(tiny_llama, questions_of(["Who?"], {0: text}))[0].status for text in ("", "  ")] == ["empty"] * 2
