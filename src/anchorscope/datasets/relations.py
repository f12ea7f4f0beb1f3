"""Relations: the built-in question sets `atlas` and `passages`, PopQA's sixteen sentences, and other wordings of both.

PopQA's sentence shows which words name the property; our wordings have a slot for the subject and mark those words.
"""

import re
import tomllib
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from anchorscope.datasets.question import Question

_FOLDER = files("anchorscope.datasets")


def load_atlas() -> list[Question]:
    relations = tomllib.loads(
        (_FOLDER / "atlas" / "relations.toml").read_text(encoding="utf-8")
    )
    questions = []
    for relation, table in relations.items():
        # Not splitlines(): it would also break a line at rarer separators that are not line ends of a TSV file.
        lines = (
            (_FOLDER / "atlas" / f"{relation}.tsv")
            .read_text(encoding="utf-8")
            .rstrip("\n")
            .split("\n")
        )
        for written, *answers in (line.split("\t") for line in lines):
            subject = written.removeprefix(
                "the "
            )  # the article belongs to the sentence, not to the name
            text = table["question"].format(subject=written)
            item_id, asked = f"{relation}-{_slug(subject)}", tuple(table["property"])
            questions.append(
                Question(
                    "atlas", item_id, text, tuple(answers), subject, relation, asked
                )
            )
    return questions


STATED, CHANGED, UNRELATED = KINDS = ("stated", "changed", "unrelated")
"""What a passage says: the fact that is asked for; another object in its place; a fact of another relation."""


def load_passages() -> list[Question]:
    """Every question of the atlas three times, after a passage of each kind, in the same wording.

    `passage_says` holds the object that the passage names, in every accepted form.
    """
    wordings = tomllib.loads((_FOLDER / "passages.toml").read_text(encoding="utf-8"))
    facts, questions = load_atlas(), []
    by_relation: dict[str | None, list[Question]] = {}
    for fact in facts:
        by_relation.setdefault(fact.relation, []).append(fact)

    def write(about: Question, stated: Question, wording: int) -> str:
        article = "the " if f"the {about.subject}" in about.question else ""
        stating = wordings[about.relation or ""]
        sentence = stating[wording % len(stating)]
        text = sentence.format(
            subject=f"{article}{about.subject}", object=stated.answers[0]
        )
        return str(text[0].upper() + text[1:])

    for number, fact in enumerate(facts):
        same = by_relation[fact.relation]
        accepted = {form.casefold() for form in fact.answers}
        others = _from_afar(same, same.index(fact))
        other = next(
            fit
            for fit in others
            if accepted.isdisjoint(form.casefold() for form in fit.answers)
        )
        elsewhere = next(
            fit for fit in _from_afar(facts, number) if fit.relation != fact.relation
        )
        for kind, about, said in (
            (STATED, fact, fact),
            (CHANGED, fact, other),
            (UNRELATED, elsewhere, elsewhere),
        ):
            questions.append(
                replace(
                    fact,
                    dataset="passages",
                    item_id=f"{fact.item_id}-{kind}",
                    context=(write(about, said, number),),
                    metadata={"kind": kind, "passage_says": "|".join(said.answers)},
                )
            )
    return questions


def _from_afar(facts: list[Question], index: int) -> Iterator[Question]:
    """All facts, beginning a third of the list away: neighbours are often alike."""
    return (
        facts[(index + len(facts) // 3 + step) % len(facts)]
        for step in range(len(facts))
    )


def _slug(text: str) -> str:
    """ASCII letters and digits joined by hyphens, for ids in file names and command lines."""
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    # Apostrophes vanish ("Gulliver's" -> "gullivers") and a plus is a word of its own ("C++" is not "C").
    spelled = ascii_text.lower().replace("'", "").replace("+", " plus ")
    return re.sub(r"[^a-z0-9]+", "-", spelled).strip("-")


_MARKED = re.compile(r"\[([^\]]+)\]")


@cache
def sentences() -> dict[str, dict[str, Any]]:
    """The sentences by dataset and relation, with marks."""
    return tomllib.loads((_FOLDER / "wordings.toml").read_text(encoding="utf-8"))


def with_property_words(row: dict[str, object]) -> dict[str, object]:
    """The row with its property words, if its question is PopQA's sentence of its relation."""
    relation, question = row.get("relation"), row.get("question")
    sentence = (
        sentences()["popqa_original"].get(relation)
        if isinstance(relation, str)
        else None
    )
    if sentence is None or row.get("property_words") or not isinstance(question, str):
        return row
    before, _, after = _MARKED.sub(r"\1", sentence).partition("{subject}")
    text = question.strip()
    asks = (
        len(text) >= len(before + after)
        and text.startswith(before)
        and text.endswith(after)
    )
    return row | {"property_words": _MARKED.findall(sentence)} if asks else row


def reworded(question: Question) -> list[Question]:
    """The question in each of our other wordings, with its property words; empty if its relation has none."""
    ours = sentences().get(question.dataset, {}).get(question.relation or "", [])
    if (
        not ours
        or question.subject is None
        or question.exact_spans
        or question.subject not in question.question
    ):
        return []
    # The article is the sentence's, not the name's: "the Netherlands" is asked about.
    article = "the " if f"the {question.subject}" in question.question else ""
    wordings = []
    for sentence in ours:
        words = tuple(dict.fromkeys(_MARKED.findall(sentence)))
        text = _MARKED.sub(r"\1", sentence).format(
            subject=f"{article}{question.subject}"
        )
        wordings.append(
            replace(question, question=text[0].upper() + text[1:], property_words=words)
        )
    return wordings
