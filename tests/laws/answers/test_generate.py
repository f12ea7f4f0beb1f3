"""Answers of the model: greedy, sampled, in conversations."""

import pickle
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from anchorscope.answers import generate
from anchorscope.answers.generate import EXTRA_THINKING_TOKENS, Answer
from anchorscope.answers.template import FEW_SHOT_TEMPLATE, build_prompts, make_template
from anchorscope.datasets.question import Question
from anchorscope.errors import UserError
from anchorscope.execute.executor import LocalExecutor
from anchorscope.execute.run_passes import run_answers, run_decoding
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.wrapping import wrap
from anchorscope.plan.passes import (
    AnswersPass,
    plan_answers,
    plan_thinking,
    with_thinking_of,
)
from anchorscope.progress import Silent
from anchorscope.spans.locate import locate
from anchorscope.spans.question_spans import locate_question_words
from chat_templates import MARKED
from many_workers import ManyWorkers
from tiny_models import speaker

PLACES = ("Ada", "Bo", "Cix", "Dun", "Er", "Fu")
TEXTS = [
    f"What is the {kind} of {place}?"
    for kind in ("capital", "sport")
    for place in PLACES
]
ROOM = 12
SPECIAL = {256, 257, 258}
"""The talker's special tokens, which end an answer."""


@pytest.fixture(scope="module")
def talker(tiny_llama: LanguageModel) -> LanguageModel:
    """A tiny model that says different things, with a vocabulary in which many tokens end in a line break."""
    letters = [chr(code) for code in range(33, 127)]
    words = [
        *letters,
        "Ġ",
        "Ċ",
        *(f"{letter}Ċ" for letter in letters[:20]),
        *(f"Ġ{letter}" for letter in letters),
    ]
    places = np.random.default_rng(0).permutation(256).tolist()
    tokenizer = Tokenizer(
        models.BPE(vocab=dict(zip(words, places, strict=False)), merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>", "<pad>"])
    model = deepcopy(tiny_llama.model)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                # the tiny model itself says the same to every question
                parameter.mul_(2)
    return wrap(
        model,
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, eos_token="</s>", pad_token="<pad>"
        ),
    )


@pytest.fixture(scope="module")
def talked(talker: LanguageModel) -> list[Answer]:
    return answered(talker, questions_of(TEXTS))


def questions_of(
    texts: list[str], given: dict[int, str] | None = None
) -> list[Question]:
    return [
        Question("d", str(i), text, ("x",), model_answer=(given or {}).get(i))
        for i, text in enumerate(texts)
    ]


def answered(
    lm: LanguageModel, questions: list[Question], room: int = ROOM
) -> list[Answer]:
    work = plan_answers(
        questions, lm.tokenizer, FEW_SHOT_TEMPLATE, room, 600, lm.context
    )
    return run_answers(LocalExecutor(lambda: lm), work, Silent())


def plain_greedy(
    lm: LanguageModel, prompt: tuple[int, ...], ends: set[int], room: int
) -> tuple[list[int], list[float], bool]:
    """The same by transformers' own forward pass, one prompt at a time, without any cache."""
    ids, log_probs = list(prompt), []
    for _ in range(room + 1):
        with torch.no_grad():
            best, token = torch.log_softmax(
                lm.model(torch.tensor([ids])).logits[0, -1].float(), -1
            ).max(-1)
        if int(token) in ends or "\n" in lm.tokenizer.decode([int(token)]):
            return ids[len(prompt) :], log_probs, True
        ids.append(int(token))
        log_probs.append(float(best))
    return ids[len(prompt) : len(prompt) + room], log_probs[:room], False


def test_an_answer_ends_before_the_first_token_with_a_line_break(
    talker: LanguageModel, talked: list[Answer]
) -> None:
    lengths = set()
    for prompt, answer in zip(
        build_prompts(talker.tokenizer, questions_of(TEXTS)), talked, strict=True
    ):
        ids, log_probs, finished = plain_greedy(talker, prompt.ids, SPECIAL, ROOM)
        assert list(answer.ids) == ids
        assert answer.log_probs == pytest.approx(log_probs, abs=1e-3)
        text = talker.tokenizer.decode(ids).strip()
        assert answer.text == text
        assert "\n" not in text
        assert answer.status == (
            "truncated" if not finished else "answered" if text else "empty"
        )
        lengths.add((len(ids), finished))
    # The examples must hold what the test is about: answers that end early, later, and not in time.
    assert {finished for _, finished in lengths} == {True, False}
    assert len({length for length, finished in lengths if finished}) > 2


def test_every_end_token_ends_an_answer(
    talker: LanguageModel, talked: list[Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    end = next(answer.ids[1] for answer in talked if len(answer.ids) > 2)
    monkeypatch.setattr(talker.model.generation_config, "eos_token_id", [257, end])
    for answer, before in zip(
        answered(talker, questions_of(TEXTS)), talked, strict=True
    ):
        if end in before.ids:
            assert answer.ids == before.ids[: before.ids.index(end)]
            assert answer.status in ("answered", "empty")
        else:
            assert (answer.ids, answer.status) == (before.ids, before.status)


def test_an_answer_that_is_given_is_tokenised_and_not_generated(
    tiny_llama: LanguageModel,
) -> None:
    def never() -> LanguageModel:
        raise AssertionError("the model was asked")

    questions = questions_of(["Who?"], {0: " Jane Austen "})
    work = plan_answers(
        questions,
        tiny_llama.tokenizer,
        FEW_SHOT_TEMPLATE,
        ROOM,
        600,
        tiny_llama.context,
    )
    (answer,) = run_answers(LocalExecutor(never), work, Silent())
    assert answer.text == "Jane Austen"
    assert answer.ids == tuple(
        tiny_llama.tokenizer(" Jane Austen", add_special_tokens=False)["input_ids"]
    )
    assert answer.log_probs is None
    assert answer.status == "answered"


QUESTIONS = [
    Question(
        "facts",
        f"item-{index}",
        f"Where is {place}?",
        ("x",),
        model_answer="Bo" if index == 1 else None,
    )
    for index, place in enumerate(("Ada", "Bolton", "Cix", "Dunwich"))
]


def samples(
    lm: LanguageModel, questions: Sequence[Question], n: int, seed: int = 0
) -> list[list[Answer]]:
    work = plan_answers(questions, lm.tokenizer, FEW_SHOT_TEMPLATE, 6, 1000).sampled(
        n, seed
    )
    spoken = run_answers(
        LocalExecutor(lambda: lm), pickle.loads(pickle.dumps(work)), Silent()
    )
    return [spoken[first : first + n] for first in range(0, len(spoken), n)]


def ids(answers: Sequence[Sequence[Answer]]) -> list[list[tuple[int, ...]]]:
    return [[one.ids for one in some] for some in answers]


@pytest.fixture(scope="module")
def sampled(tiny_llama: LanguageModel) -> list[list[Answer]]:
    return samples(tiny_llama, QUESTIONS, 4)


def test_samples_hang_on_seed_item_and_number_only(
    tiny_llama: LanguageModel, sampled: list[list[Answer]]
) -> None:
    some = samples(tiny_llama, [QUESTIONS[2], QUESTIONS[0]], 2)
    assert ids(some) == [
        ids(sampled)[2][:2],
        ids(sampled)[0][:2],
    ]  # fewer questions, another order, fewer samples
    assert ids(samples(tiny_llama, QUESTIONS, 4, seed=1)) != ids(sampled)
    other = replace(QUESTIONS[0], item_id="another")
    assert ids(samples(tiny_llama, [other], 4))[0] != ids(sampled)[0]


TEMPLATE = "{% for message in messages %}[{{ message.content }}]{% endfor %}~"
CHAT_QUESTIONS = [
    Question("d", "1", "Where?", ("Paris",)),
    Question("d", "2", "And where is Rome?", ("Italy",)),
]


def talking(
    lm: LanguageModel, *script: str, special: Sequence[str] = ()
) -> LanguageModel:
    """A model that says the script in a chat."""
    tokenizer = deepcopy(lm.tokenizer)
    tokenizer.add_tokens(["<think>", "</think>"], special_tokens=bool(special))
    tokenizer.chat_template = TEMPLATE
    return speaker(tokenizer, *script)


def asked(
    lm: LanguageModel, questions: Sequence[Question], max_new_tokens: int = 8
) -> AnswersPass:
    """The questions as a run would put them in a chat."""
    template = make_template("chat", lm.tokenizer, lm.needs_bos)
    return plan_answers(questions, lm.tokenizer, template, max_new_tokens, 4096)


def said(lm: LanguageModel, max_new_tokens: int = 8) -> list[Answer]:
    return run_answers(
        LocalExecutor(lambda: lm), asked(lm, CHAT_QUESTIONS, max_new_tokens), Silent()
    )


def spell(lm: LanguageModel, ids: Sequence[int]) -> str:
    return str(lm.tokenizer.decode(list(ids)))


@pytest.mark.parametrize("end", ["\n", "</s>", "<pad>", "<s>"])
def test_an_answer_ends_at_a_line_break_and_at_every_special_token(
    tiny_llama: LanguageModel, end: str
) -> None:
    for answer in said(talking(tiny_llama, "Paris", end)):
        assert (answer.text, answer.status, answer.before) == ("Paris", "answered", ())
        assert len(answer.ids) == len(answer.log_probs or ()) == 5


def test_a_line_break_before_any_visible_character_is_no_end(
    tiny_llama: LanguageModel,
) -> None:
    lm = talking(tiny_llama, "\n", " ", "Paris", "</s>")
    for answer in said(lm, max_new_tokens=5):
        assert (answer.text, answer.status) == ("Paris", "answered")
        assert spell(lm, answer.ids) == "Paris"
        assert spell(lm, answer.before) == "\n "
        assert len(answer.log_probs or ()) == 5


@pytest.mark.parametrize("special", [(), ("tags",)], ids=["plain tags", "special tags"])
def test_a_thinking_block_that_comes_anyway_is_context(
    tiny_llama: LanguageModel, special: tuple[str, ...]
) -> None:
    script = ("<think>", "\n", "hm, wel", "</think>", "\t", "Paris", "</s>")
    lm = talking(tiny_llama, *script, special=special)
    for question, answer in zip(
        CHAT_QUESTIONS, said(lm, max_new_tokens=5), strict=True
    ):
        assert (answer.text, answer.status) == ("Paris", "answered")
        assert spell(lm, answer.before) == "<think>\nhm, wel</think>\t"
        (prompt,) = asked(lm, [question]).prompts
        located = locate(
            lm.tokenizer, question, locate_question_words(question), prompt, answer
        )
        assert located.input_ids == prompt.ids + answer.before + answer.ids
        assert located.answer_start == len(prompt.ids) + len(answer.before)
        assert (
            spell(lm, [located.input_ids[at] for at in located.answer_tokens])
            == "Paris"
        )


def test_thinkers_are_asked_again_whoever_runs_the_shards(
    tiny_llama: LanguageModel,
) -> None:
    """Half of the samples think: only theirs are drawn again, and each goes back to its own place."""
    lm = talking(
        tiny_llama, "<think>", "\n", "hm, wel", "</think>", "\t", "Paris", "</s>"
    )
    tilde, think, first = (
        int(lm.tokenizer(text)["input_ids"][0]) for text in ("~", "<think>", "P")
    )
    with torch.no_grad():  # after the prompt, a thinking block or the answer at once
        lm.model.lm_head.weight[first, tilde] = lm.model.lm_head.weight[think, tilde]
    template = make_template("chat", lm.tokenizer, lm.needs_bos)
    work = plan_answers(CHAT_QUESTIONS, lm.tokenizer, template, 5, 60).sampled(
        4, seed=0
    )
    wanted = run_answers(LocalExecutor(lambda: lm), work, Silent())
    thinks = [bool(answer.before) for answer in wanted]
    assert 0 < sum(thinks) < 8
    assert {answer.text for answer in wanted} == {"Paris"}
    executor = ManyWorkers(lm, "mixed")
    assert run_answers(executor, work, Silent()) == wanted
    again = [
        shard
        for shard in executor.shards
        if shard.max_new_tokens > EXTRA_THINKING_TOKENS
    ]
    assert sum(shard.n_items for shard in again) == sum(thinks)
    assert len(executor.shards) - len(again) > 2


def test_thinking_without_an_end_is_truncated(
    tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert EXTRA_THINKING_TOKENS >= 1000  # enough for a thought
    monkeypatch.setattr(generate, "EXTRA_THINKING_TOKENS", 100)
    lm = talking(tiny_llama, "<think>", "\n", "hm")  # and "m" for ever
    for answer in said(lm, max_new_tokens=5):
        assert (answer.text, answer.ids, answer.status) == ("", (), "truncated")
        assert len(answer.before) == 5 + 100


def thought(lm: LanguageModel, max_tokens: int) -> list[Question]:
    lm.tokenizer.chat_template = MARKED
    template = make_template("chat", lm.tokenizer, lm.needs_bos)
    work = plan_thinking(CHAT_QUESTIONS, lm.tokenizer, template, max_tokens, 4096)
    assert all(spell(lm, ids).endswith("~<think>\n") for ids in work.prompts)
    written = run_decoding(LocalExecutor(lambda: lm), work, Silent())
    return with_thinking_of(CHAT_QUESTIONS, [spell(lm, text.ids) for text in written])


@pytest.mark.parametrize("special", [(), ("tags",)], ids=["plain tags", "special tags"])
def test_what_a_model_thinks_is_a_source_of_its_answer(
    tiny_llama: LanguageModel, special: tuple[str, ...]
) -> None:
    """Asked to think, it writes up to the mark; the answer comes after the same text, with the block closed."""
    lm = talking(
        tiny_llama, "\n", "hm, wel", "</think>", "Paris", "</s>", special=special
    )
    questions = thought(lm, 40)
    assert [question.thinking for question in questions] == ["hm, wel"] * 2
    for prompt in asked(lm, questions).prompts:
        assert prompt.text.endswith("~<think>\nhm, wel\n</think>\n\n")
        start, end = dict(prompt.sources)["thinking"]
        assert prompt.text[start:end] == "hm, wel"


def test_thinking_that_never_closes_leaves_its_question_out(
    tiny_llama: LanguageModel,
) -> None:
    assert (
        thought(talking(tiny_llama, "\n", "hm, wel", "</think>", "Paris", "</s>"), 5)
        == []
    )


def test_a_template_without_marks_has_no_place_for_thinking(
    tiny_llama: LanguageModel,
) -> None:
    template = make_template("chat", talking(tiny_llama, "x").tokenizer)
    with pytest.raises(
        UserError, match="has no <think> for thinking; leave --thinking out"
    ):
        template.ask_to_think(CHAT_QUESTIONS[0])
