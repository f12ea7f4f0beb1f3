"""Answers in a conversation: blank lines and thinking blocks before them are context, not answer.

The speaker is a real model whose weights are written by hand: attention and feed-forward parts add next to nothing, and
the head sends every token to the one that follows it in a script. It says what a test wants, through the engine.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import fields

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from anchorscope.answers import generate
from anchorscope.answers.generate import EXTRA_BLANK_TOKENS, EXTRA_THINKING_TOKENS, Answer
from anchorscope.answers.template import make_template
from anchorscope.datasets.question import Question
from anchorscope.execute.executor import LocalExecutor
from anchorscope.execute.run_passes import run_answers, run_samples
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.wrapping import wrap
from anchorscope.plan.decoding import AnswersPass, SamplesPass, plan_answers
from anchorscope.progress import Silent
from anchorscope.spans.locate import locate
from anchorscope.spans.question_spans import locate_question_words
from many_workers import ManyWorkers

TEMPLATE = "{% for message in messages %}[{{ message.content }}]{% endfor %}~"
QUESTIONS = [Question("d", "1", "Where?", ("Paris",)), Question("d", "2", "And where is Rome?", ("Italy",))]
SIZE = 264


def speaker(lm: LanguageModel, *script: str, special: Sequence[str] = ()) -> LanguageModel:
    """A model that says the script after the prompt's last character; no token may be in it twice."""
    tokenizer = deepcopy(lm.tokenizer)
    tokenizer.add_tokens(["<think>", "</think>"], special_tokens=bool(special))
    tokenizer.chat_template = TEMPLATE
    config = LlamaConfig(
        vocab_size=SIZE,
        hidden_size=SIZE,
        intermediate_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        bos_token_id=256,
        eos_token_id=257,
        pad_token_id=258,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    path = [int(token) for text in ("~", *script) for token in tokenizer(text)["input_ids"]]
    assert len(path) == len(set(path)), "every token must have one successor"
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(torch.eye(SIZE))
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(0.1)
            layer.mlp.down_proj.weight.mul_(0.1)
        model.lm_head.weight.zero_()
        for token, following in zip(path, [*path[1:], path[-1]], strict=True):
            model.lm_head.weight[following, token] = 1.0
    return wrap(model, tokenizer)


def asked(lm: LanguageModel, questions: Sequence[Question], max_new_tokens: int = 8) -> AnswersPass:
    """The questions as a run would put them in a chat."""
    template = make_template("chat", lm.tokenizer, lm.needs_bos)
    return plan_answers(questions, lm.tokenizer, template, max_new_tokens, 4096)


def said(lm: LanguageModel, max_new_tokens: int = 8) -> list[Answer]:
    return run_answers(LocalExecutor(lambda: lm), asked(lm, QUESTIONS, max_new_tokens), Silent())


def spell(lm: LanguageModel, ids: Sequence[int]) -> str:
    return str(lm.tokenizer.decode(list(ids)))


@pytest.mark.parametrize("end", ["\n", "</s>", "<pad>", "<s>"])
def test_an_answer_ends_at_a_line_break_and_at_every_special_token(tiny_llama: LanguageModel, end: str) -> None:
    for answer in said(speaker(tiny_llama, "Paris", end)):
        assert (answer.text, answer.status, answer.before) == ("Paris", "answered", ())
        assert len(answer.ids) == len(answer.log_probs or ()) == 5


def test_a_line_break_before_any_visible_character_is_no_end(tiny_llama: LanguageModel) -> None:
    lm = speaker(tiny_llama, "\n", " ", "Paris", "</s>")
    for answer in said(lm, max_new_tokens=5):
        assert (answer.text, answer.status) == ("Paris", "answered")
        assert spell(lm, answer.ids) == "Paris"
        assert spell(lm, answer.before) == "\n "
        assert len(answer.log_probs or ()) == 5


def test_an_answer_of_blanks_alone_is_empty(tiny_llama: LanguageModel) -> None:
    assert {answer.status for answer in said(speaker(tiny_llama, "\n", " ", "</s>"))} == {"empty"}


def test_blanks_do_not_take_the_answers_room(tiny_llama: LanguageModel) -> None:
    lm = speaker(tiny_llama, "\n", "Paris", "</s>")
    assert [answer.status for answer in said(lm, max_new_tokens=5)] == ["answered"] * 2
    short = said(lm, max_new_tokens=4)
    assert [(answer.text, answer.status) for answer in short] == [("Pari", "truncated")] * 2
    assert EXTRA_BLANK_TOKENS > 1


@pytest.mark.parametrize("special", [(), ("tags",)], ids=["plain tags", "special tags"])
def test_a_thinking_block_that_comes_anyway_is_context(tiny_llama: LanguageModel, special: tuple[str, ...]) -> None:
    script = ("<think>", "\n", "hm, wel", "</think>", "\t", "Paris", "</s>")
    lm = speaker(tiny_llama, *script, special=special)
    for question, answer in zip(QUESTIONS, said(lm, max_new_tokens=5), strict=True):
        assert (answer.text, answer.status) == ("Paris", "answered")
        assert spell(lm, answer.before) == "<think>\nhm, wel</think>\t"
        (prompt,) = asked(lm, [question]).prompts
        located = locate(lm.tokenizer, question, locate_question_words(question), prompt, answer)
        assert located.input_ids == prompt.ids + answer.before + answer.ids
        assert located.answer_start == len(prompt.ids) + len(answer.before)
        assert spell(lm, [located.input_ids[at] for at in located.answer_tokens]) == "Paris"


def test_samples_that_think_are_asked_again_with_room_for_it(tiny_llama: LanguageModel) -> None:
    lm = speaker(tiny_llama, "<think>", "\n", "hm, wel", "</think>", "\t", "Paris", "</s>")
    work = SamplesPass(asked(lm, QUESTIONS, max_new_tokens=5), n_samples=2, seed=0, temperature=1e-3)
    for some in run_samples(LocalExecutor(lambda: lm), work, Silent()):
        assert [(one.text, one.status) for one in some] == [("Paris", "answered")] * 2
        assert {spell(lm, one.before) for one in some} == {"<think>\nhm, wel</think>\t"}


def test_thinkers_are_asked_again_whoever_runs_the_shards(tiny_llama: LanguageModel) -> None:
    """Half of the samples think: only theirs are drawn again, and each goes back to its own place."""
    lm = speaker(tiny_llama, "<think>", "\n", "hm, wel", "</think>", "\t", "Paris", "</s>")
    tilde, think, first = (int(lm.tokenizer(text)["input_ids"][0]) for text in ("~", "<think>", "P"))
    with torch.no_grad():  # after the prompt, a thinking block or the answer at once
        lm.model.lm_head.weight[first, tilde] = lm.model.lm_head.weight[think, tilde]
    template = make_template("chat", lm.tokenizer, lm.needs_bos)
    work = SamplesPass(plan_answers(QUESTIONS, lm.tokenizer, template, 5, 60), n_samples=4, seed=0)
    wanted = run_samples(LocalExecutor(lambda: lm), work, Silent())
    thinks = [bool(one.before) for some in wanted for one in some]
    assert 0 < sum(thinks) < 8
    assert {one.text for some in wanted for one in some} == {"Paris"}
    executor = ManyWorkers(lm, "mixed")
    assert run_samples(executor, work, Silent()) == wanted
    again = [shard for shard in executor.shards if shard.max_new_tokens > EXTRA_THINKING_TOKENS]
    assert sum(shard.n_items for shard in again) == sum(thinks)
    assert len(executor.shards) - len(again) > 2


def test_a_thinking_block_without_an_end_is_truncated(
    tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert EXTRA_THINKING_TOKENS >= 1000  # enough for a thought
    monkeypatch.setattr(generate, "EXTRA_THINKING_TOKENS", 100)
    lm = speaker(tiny_llama, "<think>", "\n", "hm")  # and "m" for ever
    for answer in said(lm, max_new_tokens=5):
        assert (answer.text, answer.ids, answer.status) == ("", (), "truncated")
        assert len(answer.before) == 5 + 100


def test_only_an_answer_that_begins_with_the_tag_is_skipped(tiny_llama: LanguageModel) -> None:
    lm = speaker(tiny_llama, "So", "<think>", "\n")
    assert {(answer.text, answer.status) for answer in said(lm)} == {("So<think>", "answered")}


def test_a_first_token_that_the_model_needs_reaches_the_engine(tiny_llama: LanguageModel) -> None:
    lm = speaker(tiny_llama, "Paris", "</s>")

    class Needy(LanguageModel):
        needs_bos = 256

    needy = Needy(**{field.name: getattr(lm, field.name) for field in fields(lm) if field.init})
    work = asked(needy, QUESTIONS)
    assert [prompt.ids[0] for prompt in work.prompts] == [256, 256]
    assert work.prefix == work.prompts[0].ids[: len(work.prefix)]
    assert len(work.prefix) == len(work.template.head) + 1
    assert [answer.text for answer in said(needy)] == ["Paris", "Paris"]
