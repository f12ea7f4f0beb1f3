"""Sources: named spans found exactly; cutting one hides it and nothing else; needs and parts of any two."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from anchorscope.answers.generate import Answer
from anchorscope.answers.label import Label
from anchorscope.answers.template import CLOSE, OPEN, build_prompts, make_template
from anchorscope.datasets.question import Question
from anchorscope.datasets.relations import CHANGED, STATED, UNRELATED, load_passages
from anchorscope.engine.capture import AttentionMass
from anchorscope.engine.sequences import CLEAN, Cut, Variant
from anchorscope.evidence.further_runs import ItemPasses
from anchorscope.evidence.source_use import context_used
from anchorscope.evidence.sources import (
    EXCHANGED,
    PAIR,
    SOURCE,
    SPAN,
    answers_use,
    choose_pair,
    cut_random_span,
    cut_source,
    exchanged_sources,
    item_numbers,
    pair_parts,
    run_exchanged,
    run_sources,
    solve_sources,
    source_names,
)
from anchorscope.evidence_parts.parts import EvidenceItems, needs_by_name
from anchorscope.execute.executor import LocalExecutor
from anchorscope.execute.run_passes import run_states
from anchorscope.interventions.intervention import Writer
from anchorscope.items import Item
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.passes import OutOfFoldProbes
from anchorscope.probes.crossfit import ProbeSet
from anchorscope.progress import Silent
from anchorscope.spans.locate import locate_all
from anchorscope.spans.question_spans import locate_question_words
from anchorscope.stats.streams import stream
from chat_templates import CHATML, chat
from made_items import make_setting, planner_of

ASKED = Question(
    "d", "1", "What is the capital of Peru?", ("Lima",), "Peru", "capital", ("capital",)
)
THREE = [
    replace(ASKED, item_id="1", context=("Lima is a city.",)),
    replace(
        ASKED,
        item_id="2",
        context=("Lima is in Peru.", "Quito is not."),
        thinking="Is it Quito?",
    ),
    replace(ASKED, item_id="3"),
]


def located(
    lm: LanguageModel, questions: list[Question], kind: str = "few-shot"
) -> list[Item]:
    prompts = build_prompts(lm.tokenizer, questions, make_template(kind, lm.tokenizer))
    answers = [
        Answer(
            "Lima",
            tuple(lm.tokenizer(" Lima", add_special_tokens=False)["input_ids"]),
            None,
            "answered",
        )
    ]
    spans = [locate_question_words(question) for question in questions]
    tokens = locate_all(
        lm.tokenizer, questions, spans, prompts, answers * len(questions)
    )
    label = Label(True, 0, "used", 1.0)
    return [
        Item(question, answers[0], label, own)
        for question, own in zip(questions, tokens, strict=True)
    ]


def text_of(lm: LanguageModel, item: Item, name: str) -> str:
    return lm.tokenizer.decode(
        [item.located.input_ids[token] for token in item.located.source_tokens(name)]
    ).strip()


@pytest.mark.parametrize("kind", ["few-shot", "zero-shot"])
def test_every_source_is_found_token_by_token(
    tiny_llama: LanguageModel, kind: str
) -> None:
    first, second, plain = located(tiny_llama, THREE, kind)
    assert [name for name, _, _ in first.located.sources] == [
        "context",
        "question",
        "answer",
    ]
    assert text_of(tiny_llama, first, "context") == "Lima is a city."
    names = ["context[1]", "context[2]", "question", "thinking", "answer"]
    assert [name for name, _, _ in second.located.sources] == names
    assert [text_of(tiny_llama, second, name) for name in names] == [
        *("Lima is in Peru.", "Quito is not.", ASKED.question, "Is it Quito?", "Lima")
    ]
    assert second.located.source_tokens("context") == (
        *second.located.source_tokens("context[1]"),
        *second.located.source_tokens("context[2]"),
    )
    assert (
        plain.located.source_tokens("context")
        == plain.located.source_tokens("thinking")
        == ()
    )
    shared = first.located.prefix_length
    assert all(item.located.sources[0][1] >= shared for item in (first, second, plain))
    assert source_names([first, second, plain]) == [
        "context",
        "question",
        "context[1]",
        "context[2]",
        "thinking",
    ]
    assert source_names([plain]) == []


def test_a_prompt_without_sources_is_unchanged_and_thinking_is_marked(
    tiny_llama: LanguageModel,
) -> None:
    template = chat(tiny_llama, CHATML)
    plain, _ = template.write(ASKED.question)
    assert plain == template.head + ASKED.question + template.tail
    thought, spans = template.write(
        ASKED.question, ("Lima is a city.",), "Is it Quito?"
    )
    start, end = dict(spans)["thinking"]
    assert (
        thought[start:end],
        thought[:start].endswith(f"{OPEN}\n"),
        thought[end:],
    ) == (*("Is it Quito?", True, f"\n{CLOSE}\n\n"),)
    assert thought.count(OPEN) == 1


def states(
    lm: LanguageModel, items: list[Item], variants: list[Variant], at: str = "final"
) -> list[torch.Tensor]:
    setting = make_setting((at,))
    prefix = items[0].located.input_ids[: items[0].located.prefix_length]
    work = planner_of(lm, 4096).states(
        "s", [item.sequence(setting.positions) for item in items], prefix, variants
    )
    work = replace(work, keep=(((0, 2),),) * len(variants))
    return [
        part.states[0]
        for part in run_states(LocalExecutor(lambda: lm), work, Silent()).variants
    ]


def test_what_is_cut_cannot_be_felt_later(tiny_llama: LanguageModel) -> None:
    """Another passage of the same length gives the same states once it is cut, and other states if not."""
    items = located(
        tiny_llama,
        [replace(ASKED, context=(text,)) for text in ("Lima is it.", "Oslo is no.")],
    )
    cuts = Variant(
        {index: cut_source(item, "context") for index, item in enumerate(items)}
    )
    clean, cut = states(tiny_llama, items, [CLEAN, cuts])
    assert float((clean[:, 0] - clean[:, 1]).abs().max()) > 1e-3
    torch.testing.assert_close(cut[:, 0], cut[:, 1], rtol=1e-4, atol=1e-5)
    everywhere = Variant(
        {
            index: Cut(cut_source(item, "context").keys)
            for index, item in enumerate(items)
        }
    )
    torch.testing.assert_close(
        states(tiny_llama, items, [everywhere])[0], cut, rtol=1e-4, atol=1e-5
    )


def test_cutting_nothing_or_what_comes_later_changes_nothing(
    tiny_llama: LanguageModel,
) -> None:
    items = located(
        tiny_llama, [replace(question, thinking="Hm.") for question in THREE]
    )
    assert not cut_source(items[2], "context").changes
    empty = Variant({2: cut_source(items[2], "context")})
    clean, uncut = states(tiny_llama, items[:3], [CLEAN, empty])
    torch.testing.assert_close(uncut[:, 0], clean[:, 2], rtol=1e-5, atol=1e-6)
    first = [
        replace(
            item,
            tokens=replace(item.located, positions=(item.located.sources[0][1],) * 3),
        )
        for item in items
    ]
    later = Variant(
        {
            index: Cut(item.located.source_tokens("thinking"))
            for index, item in enumerate(first)
        }
    )
    clean, cut = states(tiny_llama, first, [CLEAN, later])
    torch.testing.assert_close(cut, clean, rtol=1e-5, atol=1e-6)


def test_the_control_is_as_long_and_touches_no_source(
    tiny_llama: LanguageModel,
) -> None:
    for item in located(tiny_llama, THREE[:2]):
        taken = {
            token
            for _, start, end in item.located.sources
            for token in range(start, end)
        }
        for name in source_names([item]):
            keys = cut_random_span(item, name, stream(0, "control", name)).keys
            assert len(keys) == len(item.located.source_tokens(name))
            assert taken.isdisjoint(keys)
            assert min(keys) > 0


def test_the_same_answer_after_another_items_passage(tiny_llama: LanguageModel) -> None:
    """Of another subject, which does not give the answer; the text is what the template writes with that passage."""
    passages = {"a": "Lima is it.", "b": "Lima, says b.", "c": "Oslo, says c.", "d": ""}
    asked = [
        replace(ASKED, item_id=key, subject=key, context=(text,) * bool(text))
        for key, text in passages.items()
    ]
    items, template = (
        located(tiny_llama, asked),
        make_template("few-shot", tiny_llama.tokenizer),
    )
    setting = make_setting(("final",), lambda: Writer(tiny_llama.tokenizer, template))
    texts = exchanged_sources(items, "context", setting)
    assert sorted(texts) == [
        0,
        1,
    ]  # the only other passage of c gives the answer; d has none to exchange
    for index, text in texts.items():
        (by_hand,) = located(
            tiny_llama, [replace(asked[index], context=asked[2].context)]
        )
        assert text == by_hand.sequence(("final",))
    (clean,) = states(tiny_llama, items, [CLEAN])
    given = ItemPasses(
        LocalExecutor(lambda: tiny_llama),
        planner_of(tiny_llama, 4096),
        items,
        setting,
        (0, 2),
        Silent(),
    )
    exchanged = run_exchanged(given, clean)[EXCHANGED, "context"]
    moved = [float(gap.abs().max()) > 1e-4 for gap in (exchanged - clean).unbind(1)]
    assert moved == [True, True, False, False]


def test_runs_of_every_source_and_numbers_of_every_item(
    tiny_llama: LanguageModel,
) -> None:
    items, setting = located(tiny_llama, THREE), make_setting(("final",))
    rng, n_layers, width = np.random.default_rng(0), tiny_llama.n_layers, 32
    weight = torch.as_tensor(rng.standard_normal((3, n_layers, width))).float()
    shape = np.zeros((3, n_layers))
    probe = ProbeSet(weight, torch.zeros(3, n_layers), shape, shape, ())
    probes = OutOfFoldProbes(((probe,) * 3,), np.zeros(3, np.int64), (0, 2))
    (clean,) = states(tiny_llama, items, [CLEAN])
    odds = (clean.double() * weight[0][:, None].double()).sum(-1).numpy()
    executor, planner = LocalExecutor(lambda: tiny_llama), planner_of(tiny_llama, 4096)
    passes = ItemPasses(executor, planner, items, setting, (0, 2), Silent())
    ran, log_probs = run_sources(passes, clean, odds, probes)
    assert {name for _, name in ran} == set(source_names(items))
    assert {how for how, _ in ran} == {SOURCE, SPAN}
    for (_, name), run in ran.items():
        for index, item in enumerate(items):
            moved = float((run.states[:, index] - clean[:, index]).abs().max())
            has = bool(item.located.source_tokens(name))
            assert (moved > 1e-4) == has, (name, index)
            assert (run.log_prob[index] != log_probs[index]) == has
    masses = [AttentionMass(0, (1.0,) * len(item.located.input_ids)) for item in items]
    numbers = item_numbers(items, ran, clean, odds, log_probs, masses, range(n_layers))
    assert np.isnan(numbers["context-used/context"]).tolist() == [False, False, True]
    scored = answers_use(executor, planner, items, Silent())
    assert [use for use, _ in scored] == pytest.approx(
        numbers["context-used/context"], abs=1e-5, nan_ok=True
    )
    assert [len(each) for _, each in scored] == [0, 2, 0]
    for number, share in enumerate(scored[1][1], 1):
        assert share == pytest.approx(
            numbers[f"context-used/context[{number}]"][1], abs=1e-5
        )
    assert numbers["overlap/context"][:2].tolist() == [1.0, 1.0]
    assert numbers["attention/question"][0] == pytest.approx(
        len(items[0].located.source_tokens("question"))
        / len(items[0].located.input_ids)
    )
    used = context_used(np.log([0.5, 0.5, 0.2]), np.log([0.5, 0.25, 0.4]))
    assert used == pytest.approx([0.0, 0.5, 0.0])


def world(
    n: int = 600,
) -> tuple[torch.Tensor, dict[tuple[str, str], torch.Tensor], EvidenceItems]:
    """Half of the evidence in the passage's feature, half in the answer's; the cut states lack one each."""
    rng = np.random.default_rng(1)
    labels = rng.random(n) < 0.5
    sign = np.where(labels, 1.0, -1.0)
    features = sign[:, None] + 1.2 * rng.standard_normal((n, 2))
    noise = 0.1 * rng.standard_normal((n, 10))

    def view(*held: int) -> torch.Tensor:
        shown = features * np.isin(np.arange(2), held)
        return torch.as_tensor(np.concatenate([shown, noise], axis=1)).float()[None]

    views = {
        (SOURCE, "context"): view(1),
        (SOURCE, "answer"): view(0),
        (SPAN, "context"): view(0, 1),
    }
    items = EvidenceItems(
        labels, np.arange(n), [None] * n, [str(item) for item in range(n)], 0
    )
    return view(0, 1), views, items


def test_needs_and_parts_of_two_sources_whose_evidence_is_known() -> None:
    clean, views, items = world()
    stored = solve_sources(
        clean,
        views,
        ("context", "answer"),
        items,
        np.repeat("", clean.shape[1]),
        "cpu",
        Silent(),
    )
    needs = needs_by_name(stored)
    assert needs[SOURCE]["context"].need().value == pytest.approx([0.5], abs=0.1)
    assert needs[SPAN]["context"].need().value == pytest.approx([0.0], abs=0.05)
    parts = pair_parts(needs, "context,answer")
    assert list(parts) == ["together", "context", "answer", "either"]
    assert sum(share.value for share in parts.values()) == pytest.approx([1.0])
    assert [float(share.value[0]) for share in parts.values()] == pytest.approx(
        [0.0, 0.5, 0.5, 0.0], abs=0.1
    )
    assert set(needs["context,answer"]) == {PAIR}


def test_the_pair_is_the_one_asked_for_or_the_passages_and_the_answer() -> None:
    assert choose_pair((), ["context", "question"]) == ("context", "answer")
    assert choose_pair((), ["question", "thinking"]) == ("thinking", "answer")
    assert choose_pair(("question", "context"), ["context", "question"]) == (
        "question",
        "context",
    )


def test_the_built_set_states_a_fact_changes_it_and_leaves_it_out() -> None:
    questions = load_passages()
    assert len({question.item_id for question in questions}) == len(questions)
    for stated, changed, unrelated in zip(
        questions[::3], questions[1::3], questions[2::3], strict=True
    ):
        kinds = [one.metadata["kind"] for one in (stated, changed, unrelated)]
        assert kinds == [STATED, CHANGED, UNRELATED]
        says = [
            str(one.metadata["passage_says"]).split("|")
            for one in (stated, changed, unrelated)
        ]
        assert tuple(says[0]) == stated.answers
        assert {form.casefold() for form in says[1]}.isdisjoint(
            form.casefold() for form in stated.answers
        )
        assert says[1][0] in changed.context[0]
        assert stated.answers[0] in stated.context[0]
        if len(says[1][0]) > 2:  # not a chemical symbol, which also stands inside words
            assert (
                changed.context[0].replace(says[1][0], says[0][0]) == stated.context[0]
            )
