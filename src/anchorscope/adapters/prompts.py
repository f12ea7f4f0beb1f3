"""Prompts and answers of other libraries, as a detector needs them: a question, and a short answer."""

from collections.abc import Sequence
from typing import Any

from anchorscope.answers.template import Template, decode_exactly
from anchorscope.errors import UserError


def question_of_prompt(template: Template, tokenizer: Any, ids: Sequence[int]) -> str:
    """The question of a prompt that equals the template's token for token, apart from padding."""
    given = [int(token) for token in ids]
    padding = getattr(tokenizer, "pad_token_id", None)
    while len(given) > 1 and given[-1] == padding:
        given.pop()
    text = decode_exactly(tokenizer, given)
    _, head, rest = text.partition(template.head)
    question = rest.removesuffix(template.tail)
    if head and question != rest and question.strip():
        ((wanted, _),) = template.encode(tokenizer, [template.text(question)])
        before = len(given) - len(wanted)
        if (
            before >= 0
            and given[before:] == list(wanted)
            and all(token == padding for token in given[:before])
        ):
            return question
    shown = text if len(text) <= 60 else f"{text[:28]} … {text[-28:]}"
    raise UserError(
        f"The input {shown!r} is not the prompt that the detector was trained with ({template.kind}); make inputs with "
        f"prompt(question), or give questions alone with same_prompt=False: they are asked in the detector's prompt."
    )


def visible_text(tokenizer: Any, ids: Sequence[int]) -> str:
    return str(
        tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
    )
