"""A long answer is located in memory linear in its length."""

import tracemalloc

from anchorscope.answers.generate import Answer
from anchorscope.answers.template import build_prompts
from anchorscope.datasets.question import Question
from anchorscope.models.language_model import LanguageModel
from anchorscope.spans.locate import locate
from anchorscope.spans.question_spans import locate_question_words


def test_an_answer_of_4000_tokens_takes_little_memory(tiny_llama: LanguageModel) -> None:
    question = Question("d", "1", "What is the capital of Peru?", ("Lima",), "Peru", "capital", ("capital",))
    (prompt,) = build_prompts(tiny_llama.tokenizer, [question])
    text = " It is Lima" + ", a large city on the coast that many have seen" * 85
    ids = tuple(tiny_llama.tokenizer(text, add_special_tokens=False)["input_ids"])
    assert len(ids) >= 4_000
    words, answer = locate_question_words(question), Answer(text.strip(), ids, None, "answered")
    tracemalloc.start()
    try:
        located = locate(tiny_llama.tokenizer, question, words, prompt, answer)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert tiny_llama.tokenizer.decode([located.input_ids[index] for index in located.answer_tokens]) == "Lima"
    assert peak < 10e6  # every prefix kept would be 64 MB of ids alone
