"""The chat prompt, from the tokenizer's own template.

The conversation holds one instruction and the solved examples as earlier turns. The instruction stands in the first
user turn, because not every template has a system role. The template is rendered once, with a placeholder for the
question, and split around it: what stands before and after is then the same for all items.
"""

from typing import Any

from anchorscope.answers.template import Template
from anchorscope.answers.template_examples import FEW_SHOT
from anchorscope.answers.template_thinking import SWITCHES, without_thinking
from anchorscope.errors import UserError

INSTRUCTION = "Answer every question with a name, a number or a short phrase only, not with a sentence."
"""What the model is told once, before the first example."""

# Capitals, quotes and signs: a template that changes any of them would change questions too.
_PLACEHOLDER = 'Where Is "Zq7\'s" place & why?'
_INSTEAD = "use --prompt few-shot, which needs no chat template."
_DATE = "26 Jul 2024"  # Llama's own, for when no clock is at hand: the same recipe asks the same tomorrow
_CLOCK = "strftime_now"


def chat_template(tokenizer: Any, needs_bos: int | None) -> Template:
    """The tokenizer's chat template around a question."""
    source = _source(tokenizer)
    parts = _rendered(tokenizer, source).split(_PLACEHOLDER)
    if len(parts) != 2:
        found = "changes the question's text" if len(parts) == 1 else f"repeats the question {len(parts) - 1} times"
        raise UserError(f"The chat template of this model {found}, so that its tokens cannot be told; {_INSTEAD}")
    head, tail = parts
    if not all(text in head for text in (INSTRUCTION, *(one.answer for one in FEW_SHOT))):
        raise UserError(f"The chat template of this model leaves out earlier turns of a conversation; {_INSTEAD}")
    # A chat template writes its special tokens itself; only the first one may be left to the tokenizer.
    first = needs_bos if needs_bos is not None else _first_of(tokenizer)
    return Template("chat", head, without_thinking(tail, source), "", tokenizer_adds=False, first_token=first)


def _source(tokenizer: Any) -> str:
    """The text of the template."""
    if not getattr(tokenizer, "chat_template", None):
        raise UserError(f"The tokenizer of this model has no chat template (a base model has none); {_INSTEAD}")
    try:
        return str(tokenizer.get_chat_template())
    except ValueError as error:  # several templates, none of them the default
        raise UserError(f"The tokenizer of this model has no default chat template; {_INSTEAD}") from error


def _rendered(tokenizer: Any, source: str) -> str:
    turns = [{"role": "user", "content": f"{INSTRUCTION}\n\n{FEW_SHOT[0].question}"}]
    for before, after in zip(FEW_SHOT, [*(one.question for one in FEW_SHOT[1:]), _PLACEHOLDER], strict=True):
        turns += [{"role": "assistant", "content": before.answer}, {"role": "user", "content": after}]
    if _CLOCK in source:  # a macro hides the clock; the empty expression keeps a line break that may follow
        source = f"{{% macro {_CLOCK}(format) %}}{_DATE}{{% endmacro %}}{{{{ '' }}}}{source}"
    try:
        return str(
            tokenizer.apply_chat_template(
                turns, chat_template=source, tokenize=False, add_generation_prompt=True, **SWITCHES
            )
        )
    except Exception as error:  # whatever a template makes the library say
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200].rstrip(".")
        raise UserError(f"The chat template of this model cannot be used ({reason}); {_INSTEAD}") from error


def _first_of(tokenizer: Any) -> int | None:
    """The token that the tokenizer itself puts before every text, if it is the beginning-of-text token."""
    first = tokenizer("a")["input_ids"][0]
    return int(first) if first == tokenizer.bos_token_id else None
