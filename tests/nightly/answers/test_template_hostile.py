"""Chat templates come from strangers: one that is refused, fails or does not end is one line.

Rendering happens in transformers' sandbox; only the clock is ours, so that a recipe asks the same tomorrow.
"""

from copy import deepcopy
from typing import Any

import pytest

from anchorscope.answers import template as template_file
from anchorscope.answers.template import make_template
from anchorscope.errors import UserError
from anchorscope.models.language_model import LanguageModel

SPIN = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"  # some seconds
FORBIDDEN = {
    "class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "init": "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "append": "{{ messages.append(1) }}",
    "own include": "{% include '/etc/passwd' %}",
    "large number as text": "{{ (7 ** (10 ** 5)) | string | length }}",
    "undefined": "{{ open('x') }}",
    "long range": "{% for a in range(10**9) %}{% endfor %}",
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "deep brackets": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "deep blocks": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "deep sums": "{{ " + "1+" * 20000 + "1 }}",
}


def refusal_of(lm: LanguageModel, source: Any) -> str:
    tokenizer = deepcopy(lm.tokenizer)
    tokenizer.chat_template = source
    with pytest.raises(UserError) as refused:
        make_template("chat", tokenizer)
    return str(refused.value)


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_template_that_does_what_it_must_not(
    tiny_llama: LanguageModel, name: str
) -> None:
    message = refusal_of(tiny_llama, FORBIDDEN[name])
    assert len(message) < 400
    assert "root:" not in message


def test_a_template_that_does_not_end(
    tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_file, "SECONDS", 0.5)
    assert "cannot be used (it takes more than 0.5 seconds)" in refusal_of(
        tiny_llama, SPIN
    )
