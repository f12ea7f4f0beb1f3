"""The built-in question set `atlas`: short-answer questions about many kinds of fact, from popular to obscure, written
for this project from general knowledge."""

import re
import tomllib
import unicodedata
from collections import Counter
from importlib.resources import files
from importlib.resources.abc import Traversable

from anchorscope.datasets.question import Question

NAME = "atlas"


def load() -> list[Question]:
    """All questions of the set, relation by relation, in the order of the files."""
    folder = files(__name__)
    relations = tomllib.loads((folder / "relations.toml").read_text(encoding="utf-8"))
    questions = [question for name, table in relations.items() for question in _relation(folder, name, table)]
    counts = Counter(question.item_id for question in questions)
    repeated = [item_id for item_id, count in counts.items() if count > 1]
    if repeated:
        raise ValueError(f"atlas: the same subject stands twice in a relation: {', '.join(repeated)}")
    return questions


def _relation(folder: Traversable, name: str, table: dict[str, str | list[str]]) -> list[Question]:
    template, words = str(table["question"]), tuple(table["property"])
    # Not splitlines(): it would also break a line at rarer separators that are not line ends of a TSV file.
    lines = (folder / f"{name}.tsv").read_text(encoding="utf-8").rstrip("\n").split("\n")
    return [_question(name, template, words, line) for line in lines]


def _question(relation: str, template: str, property_words: tuple[str, ...], line: str) -> Question:
    written, *answers = line.split("\t")
    if not written or not answers or not all(answers):
        raise ValueError(f"atlas: {relation}.tsv has a line without a subject or with an empty answer: {line!r}")
    # The article belongs to the sentence, not to the name: "the Netherlands" is asked about, "Netherlands" is the span.
    subject = written.removeprefix("the ")
    return Question(
        dataset=NAME,
        item_id=f"{relation}-{_slug(subject)}",
        question=template.format(subject=written),
        answers=tuple(answers),
        subject=subject,
        relation=relation,
        property_words=property_words,
    )


def _slug(text: str) -> str:
    """ASCII letters and digits joined by hyphens, so that ids survive file names and command lines."""
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    # Apostrophes vanish ("Gulliver's" -> "gullivers") and a plus is a word of its own ("C++" is not "C").
    spelled = ascii_text.lower().replace("'", "").replace("+", " plus ")
    return re.sub(r"[^a-z0-9]+", "-", spelled).strip("-")
