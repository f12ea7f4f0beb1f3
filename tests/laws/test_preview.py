"""The dry run: exactly the prompts of a run, with the exact tokens marked one by one, and what would be run."""

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from anchorscope.answers.choose import QuestionSample
from anchorscope.answers.template import build_prompts, make_template, prefix_length
from anchorscope.datasets.question import Question
from anchorscope.interventions.cuts import of_experiments
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.loading import ModelFacts
from anchorscope.preview import Preview, ShownItem, build_preview, preview_recipe, render_preview
from anchorscope.recipe import Recipe, make_recipe

TEMPLATE = "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}[assistant]"
PERU = Question("here", "p", "Where is Peru?", ("America",), "Peru", "place", ("Where",))
NIL = Question(
    "here", "n", "Where is the Nile?", ("Africa",), "Nile", "place", ("Where",), model_answer="Africa.", truthful=True
)
MUTE = Question("here", "m", "Where is Oz?", ("Kansas",), "Oz", "place", ("Where",), model_answer=" ")
GOLDEN = """What would be run
  model      small: 4 layers of width 32, 1,234 parameters
  prompt     chat; greedy answers of at most 16 tokens
  dataset    here: 2 questions (read 2, few shot 1); 1 answers and 1 labels are given; 266 shared \
tokens, then 25 to 29 own ones (median 27)
  enough?    here: 2 questions: too few for a run, which needs at least 60 (30 true and 30 false answers); a chart \
needs a few hundred
  items      at most 3,000 of each dataset, once answered; balance: relation
  pass       clean: states at every site and position are kept, to train the probes
  pass       knockout: attention to the question's exact tokens is cut; probes are also fitted on its states
  pass       random: other tokens before the answer that receive as much attention are cut, 5 times; probes are also \
fitted on its states
  pass       none: nothing is cut, in another batch order: the noise floor (at most 180 items)
  cut        in every layer; edges: all
  read at    sites attention, mlp, residual; positions final, answer_end
  chart      site mlp, position answer_end
  probes     3 sites × 2 positions × 4 layers × 5 folds × 3 kinds = 360 for each dataset

What the model would see: ⟦…⟧ is an exact token of the question (E_Q), ⟪…⟫ one of a given answer (E_A)

here, item p (E_Q by metadata; 266 shared and 25 own tokens)
  | <s>[user]Answer every question with a name, a number or a short phrase only, not with a sentence.
  | 
  | What is the capital of Japan?[assistant]Tokyo[user]Who wrote Romeo and Juliet?[assistant]William Shakespeare[user]\
What is the chemical symbol of gold?[assistant]Au[user]⟦W⟧⟦h⟧⟦e⟧⟦r⟧⟦e⟧ is ⟦P⟧⟦e⟧⟦r⟧⟦u⟧?[assistant]

here, item n (E_Q by metadata; 266 shared and 29 own tokens)
  | ⟦W⟧⟦h⟧⟦e⟧⟦r⟧⟦e⟧ is the ⟦N⟧⟦i⟧⟦l⟧⟦e⟧?[assistant]⟪A⟫⟪f⟫⟪r⟫⟪i⟫⟪c⟫⟪a⟫.
  reads final at token 301 '.'
  reads answer_end at token 300 'a'
  reads answer_before at token 294 ']'

Nothing was run: no weights were loaded and no file was written."""


def facts(lm: LanguageModel, needs_bos: int | None = None, random_weights: bool = False) -> ModelFacts:
    tokenizer: Any = deepcopy(lm.tokenizer)
    tokenizer.chat_template = TEMPLATE
    return ModelFacts("small", 4, 32, 1234, tokenizer, needs_bos, random_weights)


def asked(*questions: Question) -> QuestionSample:
    """The questions as a run would ask them; one more row was left out."""
    counts = {name: 0 for name in QuestionSample.__dataclass_fields__ if name != "questions"}
    return QuestionSample(questions=list(questions), **{**counts, "read": len(questions), "few_shot": 1})


def recipe(prompt: str, **options: Any) -> Recipe:
    return make_recipe({"prompt": prompt, "random_cuts": 5, "position": "answer_end", **options})


def joined(item: ShownItem) -> str:
    return "".join(token.text for token in item.tokens)


def marked(item: ShownItem, kind: str) -> str:
    return "".join(token.text for token in item.tokens if token.exact == kind)


def test_a_small_dry_run_reads_so(tiny_llama: LanguageModel) -> None:
    preview = build_preview(recipe("chat"), facts(tiny_llama, 256), [("here", asked(PERU, NIL))])
    assert render_preview(preview) == GOLDEN


@pytest.mark.parametrize("kind", ["few-shot", "chat"])
def test_what_is_shown_is_what_a_run_would_feed(tiny_llama: LanguageModel, kind: str) -> None:
    known = facts(tiny_llama)
    (shown,) = build_preview(recipe(kind), known, [("here", asked(PERU, NIL, MUTE))]).datasets
    prompts = build_prompts(known.tokenizer, [PERU, NIL, MUTE], make_template(kind, known.tokenizer))
    assert shown.shared == prefix_length(prompts)
    lengths = [len(prompt.ids) - shown.shared for prompt in prompts]
    assert shown.own == (min(lengths), sorted(lengths)[1], max(lengths))
    given = {"few-shot": " Africa.", "chat": "Africa."}[kind]
    for item, prompt, answer in zip(shown.items, prompts, ("", given, ""), strict=True):
        assert joined(item) == prompt.text + answer
        ids = [token.id for token in item.tokens]
        assert tuple(ids[: len(prompt.ids)]) == prompt.ids
        assert item.own == len(prompt.ids) - shown.shared
    assert [marked(item, "question") for item in shown.items] == ["WherePeru", "WhereNile", "WhereOz"]
    assert [marked(item, "answer") for item in shown.items] == ["", "Africa", ""]
    assert (shown.questions, shown.given_answers, shown.given_labels) == (3, 2, 1)


def test_few_items_of_every_dataset_are_shown_by_the_seed(tiny_llama: LanguageModel) -> None:
    many = [Question("d", str(index), f"Where is place {index}?", ("x",)) for index in range(40)]

    def shown(seed: int, count: int = 3) -> list[list[str]]:
        sets = [("d", asked(*many)), ("e", asked(*many[:2]))]
        preview = build_preview(recipe("few-shot", seed=seed), facts(tiny_llama), sets, count)
        return [[item.item_id for item in one.items] for one in preview.datasets]

    assert [len(ids) for ids in shown(0)] == [3, 2]
    assert shown(0) == shown(0) != shown(1)
    assert shown(0)[0] == sorted(shown(0)[0], key=int)
    assert [len(ids) for ids in shown(0, 1)] == [1, 1]


def test_the_shared_beginning_is_shown_once(tiny_llama: LanguageModel) -> None:
    sets = [("one", asked(PERU, NIL)), ("two", asked(MUTE))]
    text = render_preview(build_preview(recipe("few-shot"), facts(tiny_llama), sets))
    assert text.count("Romeo and Juliet") == 1
    assert [text.count(f"{name}, item") for name in ("one", "two")] == [2, 1]


def test_characters_of_several_tokens_are_shown_once(tiny_llama: LanguageModel) -> None:
    zola = Question("d", "z", "Où est Émile 🦀?", ("x",), "Émile", "place", ("est",), model_answer="🦀 à Paris")
    (item,) = build_preview(recipe("few-shot"), facts(tiny_llama), [("d", asked(zola))]).datasets[0].items
    assert joined(item).endswith("Question: Où est Émile 🦀?\nAnswer: 🦀 à Paris")
    assert marked(item, "question") == "estÉmile"
    assert len([token for token in item.tokens if token.exact == "question"]) == 3 + 6


def test_the_numbers_are_those_of_the_recipe(tiny_llama: LanguageModel) -> None:
    wanted = recipe("few-shot", position="final", folds=7, max_per_class=50, edges="direct", site="residual")
    preview = build_preview(wanted, facts(tiny_llama), [("here", asked(NIL))])
    assert preview.positions == ("final",)
    assert preview.probes == 3 * 1 * 4 * 7 * 3
    assert (preview.most_items, preview.edges, preview.headline) == (100, "direct", ("residual", "final"))
    assert list(preview.passes) == ["clean", *(one.name for one in of_experiments(["knockout"]))]
    assert "1 position ×" in render_preview(preview)


def test_a_program_reads_the_same(tiny_llama: LanguageModel) -> None:
    preview = build_preview(recipe("chat"), facts(tiny_llama), [("here", asked(NIL))])
    record = json.loads(json.dumps(preview.record()))
    assert set(record) == set(Preview.__dataclass_fields__)
    tokens = record["datasets"][0]["items"][0]["tokens"]
    assert {name: token["id"] for token in tokens for name in token["reads"]}.keys() == {
        "final",
        "answer_end",
        "answer_before",
    }
    assert "".join(token["text"] for token in tokens if token["exact"] == "answer") == "Africa"


def test_the_experiments_are_those_that_were_asked_for(tiny_llama: LanguageModel) -> None:
    wanted = recipe("few-shot", evidence=("knockout", "exact-tokens"))
    preview = build_preview(wanted, facts(tiny_llama), [("here", asked(NIL))])
    assert list(preview.passes) == ["clean", *(one.name for one in of_experiments(["knockout", "exact-tokens"]))]
    assert "subject" in preview.passes


def test_rules_alone_may_choose_the_exact_tokens_and_the_model_cannot_be_asked_here(tiny_llama: LanguageModel) -> None:
    def first(exact_tokens: str) -> ShownItem:
        wanted = recipe("few-shot", exact_tokens=exact_tokens)
        return build_preview(wanted, facts(tiny_llama), [("here", asked(PERU))]).datasets[0].items[0]

    assert (first("auto").rule, marked(first("auto"), "question")) == ("metadata", "WherePeru")
    assert first("rules").rule == "rules"
    assert marked(first("rules"), "question") == "Peru"
    assert first("model").rule == "metadata, until the model is asked"


def test_random_weights_are_told(tiny_llama: LanguageModel) -> None:
    preview = build_preview(recipe("few-shot"), facts(tiny_llama, random_weights=True), [("here", asked(NIL))])
    assert "RANDOM WEIGHTS" in render_preview(preview)
    assert preview.record()["random_weights"] is True


def test_a_recipe_is_shown_without_its_weights(tmp_path: Path, save_tiny: Callable[[str], Path]) -> None:
    folder = save_tiny("llama")
    for weights in folder.glob("*.safetensors"):  # only their header may be read: after it there are no numbers
        content = weights.read_bytes()
        header = 8 + int.from_bytes(content[:8], "little")
        weights.write_bytes(content[:header] + b"\xff" * (len(content) - header))
    questions = tmp_path / "mine.csv"
    questions.write_text("question,answers\nWho wrote Dracula?,Bram Stoker\n", encoding="utf-8")
    preview = preview_recipe(recipe("few-shot", model=str(folder), datasets=(f"file:{questions}",)), shown=1)
    assert "⟦D⟧⟦r⟧⟦a⟧⟦c⟧⟦u⟧⟦l⟧⟦a⟧?" in render_preview(preview)
    assert (preview.n_layers, preview.d_model, preview.datasets[0].questions) == (4, 32, 1)
    (record,) = preview.record()["datasets"]
    assert (record["enough"], record["needed"]) == (False, 60)
    assert record["outlook"].startswith("1 question: too few for a run")


def test_supplied_labels_are_counted_before_anything_is_run(tiny_llama: LanguageModel) -> None:
    def known(number: int, truthful: bool) -> Question:
        where = f"Where is place {number}?"
        return Question("d", str(number), where, ("x",), model_answer="here", truthful=truthful)

    mostly_false = [known(number, number < 20) for number in range(400)]
    (shown,) = build_preview(recipe("few-shot"), facts(tiny_llama), [("d", asked(*mostly_false))], 1).datasets
    assert not shown.enough
    assert "by their labels at most 20 true answers: too few for a run" in shown.outlook
    even = [known(number, number < 200) for number in range(400)]
    (shown,) = build_preview(recipe("few-shot"), facts(tiny_llama), [("d", asked(*even))], 1).datasets
    assert (shown.enough, shown.outlook) == (True, "")
