"""Small chat templates of the kinds that models bring."""

from copy import deepcopy
from typing import Any

from anchorscope.answers.template import Template, make_template
from anchorscope.models.language_model import LanguageModel

TURN = "[{{ message.role }}]{{ message.content | trim }}[end]\n"
CHATML = (
    "{% for message in messages %}"
    + TURN
    + "{% endfor %}{% if add_generation_prompt %}[assistant]\n{% endif %}"
)
FIRST = "{{ bos_token }}" + CHATML
SYSTEM = "[system]Be kind.[end]\n" + CHATML
STRICT = (
    "{% for message in messages %}{% if message.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns alternate') }}{% endif %}"
    + TURN
    + "{% endfor %}[assistant]\n"
)
CLOCK = "Today is {{ strftime_now('%d %b %Y') }}.\n" + CHATML
LLAMA_CLOCK = (
    "{% if strftime_now is defined %}{% set date = strftime_now('%d') %}{% endif %}{{ date }}\n"
    + CHATML
)
SWITCH = (
    CHATML
    + "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
)
MARKED = (
    "{% for message in messages %}[{{ message.content }}]{% endfor %}~"
    "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
)
"""Of a model that thinks, and speaks after a tilde (`tiny_models.speaker`)."""
KINDS = {
    "chatml": CHATML,
    "first": FIRST,
    "system": SYSTEM,
    "strict": STRICT,
    "clock": CLOCK,
    "switch": SWITCH,
}


def tokenizer_with(lm: LanguageModel, source: Any) -> Any:
    tokenizer = deepcopy(lm.tokenizer)
    tokenizer.chat_template = source
    return tokenizer


def chat(lm: LanguageModel, source: Any, needs_bos: int | None = None) -> Template:
    return make_template("chat", tokenizer_with(lm, source), needs_bos)
