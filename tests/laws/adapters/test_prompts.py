"""A question is found in the detector's own prompt, and nowhere else."""

import pytest

from anchorscope.adapters.prompts import question_of_prompt
from anchorscope.answers.template import make_template
from anchorscope.errors import UserError

QUESTIONS = (
    "Who wrote Dracula?",
    "Question: what is the\nanswer to « Answer: »?",
    "¿Qué? 東京 🙂",
)


@pytest.mark.parametrize("kind", ["few-shot", "zero-shot"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_the_question_comes_back_with_padding_on_either_side(
    tiny_llama, kind, question
):
    tokenizer = tiny_llama.tokenizer
    template = make_template(kind, tokenizer, tiny_llama.needs_bos)
    ((ids, _),) = template.encode(tokenizer, [template.text(question)])
    padding = tokenizer.pad_token_id
    for given in (ids, (padding, padding, *ids), (*ids, padding)):
        assert question_of_prompt(template, tokenizer, given) == " ".join(
            question.split()
        )


def test_another_prompt_is_refused(tiny_llama):
    tokenizer = tiny_llama.tokenizer
    template = make_template("few-shot", tokenizer, tiny_llama.needs_bos)
    ((ids, _),) = template.encode(tokenizer, [template.text("Who wrote Dracula?")])
    others = [
        tokenizer(text)["input_ids"]
        for text in ("Who wrote Dracula?", "", template.head + template.tail)
    ]
    for given in (*others, ids[:-1], (*ids, ids[-1]), (ids[0], *ids), ()):
        with pytest.raises(
            UserError, match="not the prompt that the detector was trained with"
        ):
            question_of_prompt(template, tokenizer, given)
