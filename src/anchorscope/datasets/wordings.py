"""Other wordings of a question: the same fact asked in other words, where its relation has sentences of ours.

A sentence has a slot for the subject and marks the words that name the property, so that the exact words of every
wording are known as well as those of the original.
"""

import re
import tomllib
from dataclasses import replace
from functools import cache
from importlib.resources import files

from anchorscope.datasets.question import Question

SENTENCES = 7
"""Sentences of each relation, beside the dataset's own."""
_MARKED = re.compile(r"\[([^\]]+)\]")


@cache
def sentences() -> dict[str, dict[str, tuple[str, ...]]]:
    """By dataset and relation, the sentences as they are written in the file, marks included."""
    text = (files("anchorscope.datasets") / "wordings.toml").read_text(encoding="utf-8")
    return {
        dataset: {name: tuple(found) for name, found in relations.items()}
        for dataset, relations in tomllib.loads(text).items()
    }


def reworded(question: Question) -> list[Question]:
    """The question in each of our other wordings, with its property words; empty where its relation has none."""
    known = sentences().get(question.dataset, {}).get(question.relation or "", ())
    if not known or question.subject is None or question.exact_spans or question.subject not in question.question:
        return []
    # The article is the sentence's, not the name's: "the Netherlands" is asked about.
    article = "the " if f"the {question.subject}" in question.question else ""
    return [_with_sentence(question, sentence, f"{article}{question.subject}") for sentence in known]


def _with_sentence(question: Question, sentence: str, subject: str) -> Question:
    words = tuple(dict.fromkeys(_MARKED.findall(sentence)))
    text = _MARKED.sub(r"\1", sentence).format(subject=subject)
    return replace(question, question=text[0].upper() + text[1:], property_words=words)
