"""An answered item in tokens: the exact question words inside the prompt, the exact answer, where probes read."""

from dataclasses import replace

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from anchorscope.answers.generate import Answer
from anchorscope.answers.template import Prompt, build_prompts
from anchorscope.catalogue import POSITIONS
from anchorscope.datasets.question import Question
from anchorscope.models.language_model import LanguageModel
from anchorscope.spans.locate import ItemTokens, locate, locate_all
from anchorscope.spans.question_spans import locate_question_words

PERU = Question(
    "d", "1", "What is the capital of Peru?", ("Lima",), "Peru", "capital", ("capital",)
)


def merging_tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte, but some that reach across words: "f P" of "of Peru" and "u?" of "Peru?"."""
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [
        ("f", "Ġ"),
        ("fĠ", "P"),
        ("u", "?"),
        ("Ġ", "c"),
        ("l", "Ġ"),
        ("i", "m"),
        ("a", "."),
    ]
    symbols += ["".join(pair) for pair in merges]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={symbol: index for index, symbol in enumerate(symbols)}, merges=merges
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=False
    )
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, clean_up_tokenization_spaces=False
    )


def found(
    tokenizer: PreTrainedTokenizerFast, question: Question, said: str = " Lima"
) -> tuple[Prompt, ItemTokens]:
    (prompt,) = build_prompts(tokenizer, [question])
    ids = tuple(tokenizer(said, add_special_tokens=False)["input_ids"])
    answer = Answer(said.strip(), ids, None, "answered")
    return prompt, locate(
        tokenizer, question, locate_question_words(question), prompt, answer
    )


def spelled(
    tokenizer: PreTrainedTokenizerFast, located: ItemTokens, tokens: tuple[int, ...]
) -> str:
    return tokenizer.decode([located.input_ids[index] for index in tokens])


def test_a_token_that_straddles_a_boundary_belongs_to_the_word() -> None:
    tokenizer = merging_tokenizer()
    _, located = found(tokenizer, PERU)
    tokens = [
        tokenizer.decode([located.input_ids[index]])
        for index in located.question_tokens
    ]
    assert tokens == [" c", "a", "p", "i", "t", "a", "l ", "f P", "e", "r", "u?"]


def test_a_token_that_straddles_the_end_of_the_answer_belongs_to_it() -> None:
    tokenizer = merging_tokenizer()
    _, located = found(tokenizer, PERU, " It is Lima.")
    tokens = [
        tokenizer.decode([located.input_ids[index]]) for index in located.answer_tokens
    ]
    assert tokens == ["L", "im", "a."]
    assert located.positions[0] == located.positions[1] == len(located.input_ids) - 1


@pytest.mark.parametrize(
    ("said", "exact"),
    [
        (" Lima", "Lima"),
        (" It is Lima, I think.", "Lima"),
        (" the city of Rome.", "city of Rome"),
        (" Lima!", "Lima"),
    ],
)
def test_positions_are_the_last_token_the_entitys_and_the_one_before(
    tiny_llama: LanguageModel, said: str, exact: str
) -> None:
    _, located = found(tiny_llama.tokenizer, PERU, said)
    at = dict(zip(POSITIONS, located.positions, strict=True))
    first = located.answer_start + said.index(exact)
    # The spaces between its words belong to nothing.
    assert located.answer_tokens == tuple(
        first + i for i, letter in enumerate(exact) if letter != " "
    )
    assert at == {
        "final": len(located.input_ids) - 1,
        "answer_end": first + len(exact) - 1,
        "answer_before": first - 1,
    }


def test_many_items_are_located_as_each_one_is_alone(tiny_llama: LanguageModel) -> None:
    tokenizer = tiny_llama.tokenizer
    said = [" Lima", " It is Lima, I think.", " Bogotá 🙂", "", " 18 January 1535"] * 40
    said.append(" It is Lima" + ", a large city on the coast that many have seen" * 20)
    answers = [
        Answer(
            text.strip(),
            tuple(tokenizer(text, add_special_tokens=False)["input_ids"]),
            None,
            status,
        )
        for text in said
        for status in ["answered" if text else "empty"]
    ]
    questions = [PERU] * len(said)
    prompts, words = (
        build_prompts(tokenizer, questions),
        [locate_question_words(PERU)] * len(said),
    )
    together = locate_all(tokenizer, questions, words, prompts, answers)
    assert [place is None for place in together] == [not text for text in said]
    for place, answer, prompt in zip(together, answers, prompts, strict=True):
        if place is not None:
            assert replace(place, prefix_length=0) == locate(
                tokenizer, PERU, words[0], prompt, answer
            )
    assert spelled(tokenizer, together[1], together[1].answer_tokens) == "Lima"
    assert spelled(tokenizer, together[197], together[197].answer_tokens) == "Bogotá🙂"
    assert len(answers[-1].ids) > 900  # so long that it is decoded prefix by prefix
    assert spelled(tokenizer, together[-1], together[-1].answer_tokens) == "Lima"
