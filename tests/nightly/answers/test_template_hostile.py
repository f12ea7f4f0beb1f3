"""Chat templates come from strangers: whatever one does, it ends in one line, soon, and takes little memory.

Rendering happens in a process of its own (`chat_child`), in which a limit of time and memory holds; what a template
of an honest model writes there is what transformers writes.
"""

import json
import resource
from copy import deepcopy
from typing import Any

import pytest

from anchorscope.answers import chat_child, chat_render
from anchorscope.answers.template import LONGEST_SOURCE, TemplateRefused, make_template, render_chat
from anchorscope.errors import UserError
from anchorscope.models.language_model import LanguageModel

TURNS = [{"role": "user", "content": 'Who wrote "Emma" & why?'}, {"role": "assistant", "content": "Jane Austen"}]
DOUBLE = "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}"
GROW = "{% set ns = namespace(x=[]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x + [i] %}{% endfor %}"
SPIN = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}" + "{% endfor %}" * 3
MUCH = {
    "repeated text": "{{ 'a' * 10**10 }}",
    "repeated list": "{{ [1] * 10**10 }}",
    "doubled text": DOUBLE,
    "doubled list": GROW,
    "width of %": "{{ '%1000000000d' % 1 }}",
    "width of format": "{{ '{:>10000000000}'.format(1) }}",
    "centre": "{{ 'a' | center(10**9) }}",
    "indent": "{{ ('a\\n' * 100000) | indent(100000) }}",
    "join": "{{ range(99999) | join('a' * 10**6) }}",
    "replace": "{{ ('a' * 10**5) | replace('a', 'b' * 10**5) }}",
    "slices": "{{ 'a' | batch(10**9, 'x') | list }}",
    "long output": "{% for a in range(99999) %}{{ 'a' * 99 }}{% endfor %}",
}
LONG = {"nested loops": SPIN, "power": "{{ 10 ** (10 ** 8) }}"}
FORBIDDEN = {
    "class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{ raise_exception.__globals__ }}",
    "init": "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "format": "{{ '{0.__class__}'.format(messages) }}",
    "append": "{{ messages.append(1) }}",
    "include": "{% include 'tokenizer.json' %}",
    "own include": "{% include '/etc/passwd' %}",
    "large number as text": "{{ (7 ** (10 ** 5)) | string | length }}",
    "undefined": "{{ open('x') }}",
    "long range": "{% for a in range(10**9) %}{% endfor %}",
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "deep brackets": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "deep lists": "{{ " + "[" * 5000 + "]" * 5000 + " }}",
    "deep blocks": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "deep sums": "{{ " + "1+" * 20000 + "1 }}",
    "very long": " " * (LONGEST_SOURCE + 1),
}
HONEST = {
    "tags": "{% for message in messages %}{% generation %}<{{ message.role }}> {{ message.content }}{% endgeneration %}"
    "{% if loop.last %}{% break %}{% endif %}{% endfor %}",
    "json": "{{ messages | tojson }}{{ messages | tojson(indent=2) }}{{ {'é': 1} | tojson(ensure_ascii=true) }}",
    "blocks": "  {% if true %}\n  a\n  {% endif %}\n{{- bos_token -}} \n {{ eos_token }}\n\n",
    "names": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + m.content | length %}"
    "{% endfor %}{{ ns.n }} {{ dict(a=1).a }} {{ tools is none }} {{ documents is none }} {{ add_generation_prompt }}"
    "{{ nothing }}",
    "filters": "{{ messages | map(attribute='role') | join(',') | upper | wordwrap(4) | indent }}"
    "{{ '%05.2f' % 3.14159 }}"
    "{{ (messages | selectattr('role', 'equalto', 'user') | list)[0].content | trim | replace('\"', \"'\") }}",
    "macro": "{% macro turn(m, sep='\\n') %}{{ m['role'] ~ sep }}{% endmacro %}"
    "{{ turn(messages[-1]) }}{{ turn(messages[0], '') }}",
    "lines": "\n\n{# said #}\n{% for m in messages[::-1] -%}\n {{ m.content.split(' ')[-1] }}\n{%- endfor %}\n",
    "clock": "{{ strftime_now is defined }}",
}


def told(lm: LanguageModel, source: Any) -> str:
    tokenizer = deepcopy(lm.tokenizer)
    tokenizer.chat_template = source
    with pytest.raises(UserError) as refused:
        make_template("chat", tokenizer)
    return str(refused.value)


@pytest.mark.parametrize("name", MUCH)
def test_a_template_that_wants_much_memory_or_writes_much(tiny_llama: LanguageModel, name: str) -> None:
    message = told(tiny_llama, MUCH[name])
    assert "more than 512 MB of memory" in message or "characters)" in message or "more than 2 seconds" in message
    assert message.endswith("use --prompt few-shot, which needs no chat template.")


@pytest.mark.parametrize("name", LONG)
def test_a_template_that_does_not_end(tiny_llama: LanguageModel, name: str) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "cannot be used (it takes more than 2 seconds)" in told(tiny_llama, LONG[name])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 5


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_template_that_does_what_it_must_not(tiny_llama: LanguageModel, name: str) -> None:
    message = told(tiny_llama, FORBIDDEN[name])
    assert "\n" not in message
    assert len(message) < 400
    assert "root:" not in message


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_template_is_rendered_as_transformers_does(tiny_llama: LanguageModel, name: str) -> None:
    tokenizer = tiny_llama.tokenizer
    expected = tokenizer.apply_chat_template(
        TURNS, chat_template=HONEST[name], tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    given = {**tokenizer.special_tokens_map, "enable_thinking": False}
    assert render_chat(HONEST[name], TURNS, given) == expected


def test_a_template_is_rendered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "once {{ messages[0].content }}"
    first = render_chat(source, TURNS, {})
    monkeypatch.setattr(chat_render.subprocess, "run", lambda *_, **__: pytest.fail("rendered again"))
    assert render_chat(source, TURNS, {}) == first


def test_what_a_process_says_that_dies_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    class Died:
        returncode, stdout = -11, b""

    monkeypatch.setattr(chat_render.subprocess, "run", lambda *_, **__: Died())
    with pytest.raises(TemplateRefused, match="ended without an answer"):
        render_chat("dies {{ 1 }}", TURNS, {})


def test_texts_with_half_a_character_survive() -> None:
    assert render_chat("{{ messages[0].content }}", [{"role": "user", "content": "a\ud800b\u0000é🦀"}], {}) == (
        "a\ud800b\u0000é🦀"
    )


def test_the_child_reads_plain_requests_only() -> None:
    request = {"source": "{{ messages[0].content }}", "variables": {"messages": TURNS}, "date": "", "path": []}
    assert chat_child.rendered(json.loads(json.dumps(request))) == {"text": TURNS[0]["content"]}
