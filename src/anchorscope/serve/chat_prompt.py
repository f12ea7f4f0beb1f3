"""A conversation as the model's own chat template writes it, in tokens.

The template comes with the model: it is rendered in transformers' sandbox (`answers/template.py`).
Thinking is switched off where the template has a switch.
"""

from collections.abc import Mapping, Sequence

from anchorscope.answers.template import SWITCHES, TemplateRefused, render_chat
from anchorscope.models.language_model import LanguageModel
from anchorscope.serve.errors import ServiceError


def chat_ids(lm: LanguageModel, turns: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
    """Tokens of a conversation, up to where the model goes on; 422 where its template does not take it."""
    tokenizer = lm.tokenizer
    if not getattr(tokenizer, "chat_template", None):
        raise ServiceError(
            422,
            "no_chat_template",
            'The model has no chat template (a base model has none); ask with "truth": true, which needs none.',
            param="messages",
        )
    try:
        source = str(tokenizer.get_chat_template())
        text = render_chat(source, turns, {**tokenizer.special_tokens_map, **SWITCHES})
    except (ValueError, TemplateRefused):  # what a template says may repeat what was asked
        raise ServiceError(
            422,
            "chat_refused",
            "The model's chat template does not take this conversation; most want user and "
            "assistant in turn, the user last.",
            param="messages",
        ) from None
    ids = tuple(int(token) for token in tokenizer(text, add_special_tokens=False)["input_ids"])
    first = lm.needs_bos
    return ids if first is None or ids[:1] == (first,) else (first, *ids)
