"""The dry run: exactly the prompts of a run, with the exact tokens marked one by one, and what would be run."""

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from anchorscope.answers.choose import QuestionSample
from anchorscope.answers.template import build_prompts, make_template, prefix_length
from anchorscope.cli.run import render_preview
from anchorscope.datasets.question import Question
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.loading import ModelFacts
from anchorscope.preview import Record, build_preview, preview_recipe
from anchorscope.recipe import Recipe, make_recipe

TEMPLATE = "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}[assistant]"
PERU = Question(
    "here", "p", "Where is Peru?", ("America",), "Peru", "place", ("Where",)
)
NIL = Question(
    "here",
    "n",
    "Where is the Nile?",
    ("Africa",),
    "Nile",
    "place",
    ("Where",),
    model_answer="Africa.",
    truthful=True,
)
MUTE = Question(
    "here",
    "m",
    "Where is Oz?",
    ("Kansas",),
    "Oz",
    "place",
    ("Where",),
    model_answer=" ",
)


def facts(lm: LanguageModel) -> ModelFacts:
    tokenizer: Any = deepcopy(lm.tokenizer)
    tokenizer.chat_template = TEMPLATE
    return ModelFacts("small", 4, 32, 1234, tokenizer, None, False)


def asked(*questions: Question) -> QuestionSample:
    """The questions as a run would ask them; one more row was left out."""
    counts = {
        name: 0 for name in QuestionSample.__dataclass_fields__ if name != "questions"
    }
    return QuestionSample(
        questions=list(questions), **{**counts, "read": len(questions), "few_shot": 1}
    )


def recipe(prompt: str, **options: Any) -> Recipe:
    return make_recipe(
        {"prompt": prompt, "random_cuts": 5, "position": "answer_end", **options}
    )


def marked(item: Record, kind: str) -> str:
    return "".join(token["text"] for token in item["tokens"] if token["exact"] == kind)


@pytest.mark.parametrize("kind", ["few-shot", "chat"])
def test_what_is_shown_is_what_a_run_would_feed(
    tiny_llama: LanguageModel, kind: str
) -> None:
    known = facts(tiny_llama)
    (shown,) = build_preview(recipe(kind), known, [("here", asked(PERU, NIL, MUTE))])[
        "datasets"
    ]
    prompts = build_prompts(
        known.tokenizer, [PERU, NIL, MUTE], make_template(kind, known.tokenizer)
    )
    assert shown["shared"] == prefix_length(prompts)
    lengths = [len(prompt.ids) - shown["shared"] for prompt in prompts]
    assert shown["own"] == [min(lengths), sorted(lengths)[1], max(lengths)]
    given = {"few-shot": " Africa.", "chat": "Africa."}[kind]
    for item, prompt, answer in zip(
        shown["items"], prompts, ("", given, ""), strict=True
    ):
        assert (
            "".join(token["text"] for token in item["tokens"]) == prompt.text + answer
        )
        assert (
            tuple(token["id"] for token in item["tokens"])[: len(prompt.ids)]
            == prompt.ids
        )
        assert item["own"] == len(prompt.ids) - shown["shared"]
    assert [marked(item, "question") for item in shown["items"]] == [
        "WherePeru",
        "WhereNile",
        "WhereOz",
    ]
    assert [marked(item, "answer") for item in shown["items"]] == ["", "Africa", ""]
    assert (shown["questions"], shown["given_answers"], shown["given_labels"]) == (
        3,
        2,
        1,
    )


def test_a_recipe_is_shown_without_its_weights(
    tmp_path: Path, save_tiny: Callable[[str], Path]
) -> None:
    folder = save_tiny("llama")
    for weights in folder.glob(
        "*.safetensors"
    ):  # only their header may be read: after it there are no numbers
        content = weights.read_bytes()
        header = 8 + int.from_bytes(content[:8], "little")
        weights.write_bytes(content[:header] + b"\xff" * (len(content) - header))
    questions = tmp_path / "mine.csv"
    questions.write_text(
        "question,answers\nWho wrote Dracula?,Bram Stoker\n", encoding="utf-8"
    )
    preview = preview_recipe(
        recipe("few-shot", model=str(folder), datasets=(f"file:{questions}",)), shown=1
    )
    assert "⟦D⟧⟦r⟧⟦a⟧⟦c⟧⟦u⟧⟦l⟧⟦a⟧?" in render_preview(preview)
    (dataset,) = json.loads(json.dumps(preview))["datasets"]
    assert (
        preview["model"]["n_layers"],
        preview["model"]["d_model"],
        dataset["questions"],
    ) == (4, 32, 1)
    assert not dataset["enough"]
    assert dataset["outlook"].startswith("1 question: too few for a run")
