"""Relations: PopQA's sixteen, each one sentence around a subject, and other wordings of a relation's question.

PopQA's sentence shows which words name the property asked for. A wording of ours has a slot for the subject and marks
those words, so that the exact words of every wording are known as well as those of the original.
"""

import re
import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from anchorscope.datasets.question import Question


@dataclass(frozen=True)
class Relation:
    """A kind of fact that PopQA asks for."""

    name: str
    number: int
    before: str
    """The question up to its subject."""
    after: str
    """The question after its subject."""
    words: tuple[str, ...]
    """The words of the sentence that name the property."""

    def asks(self, question: str) -> bool:
        """Whether the question is this relation's sentence."""
        long_enough = len(question) >= len(self.before) + len(self.after)
        return long_enough and question.startswith(self.before) and question.endswith(self.after)

    def subject(self, question: str) -> str | None:
        """What the sentence is put around; None if it is not this sentence, or around nothing."""
        if not self.asks(question):
            return None
        return question[len(self.before) : len(question) - len(self.after)].strip() or None


RELATIONS = (
    Relation("occupation", 22, "What is ", "'s occupation?", ("occupation",)),
    Relation("genre", 91, "What genre is ", "?", ("genre",)),
    Relation("capital of", 97, "What is ", " the capital of?", ("capital",)),
    Relation("religion", 106, "What is the religion of ", "?", ("religion",)),
    Relation("producer", 164, "Who was the producer of ", "?", ("producer",)),
    Relation("country", 182, "In what country is ", "?", ("country",)),
    Relation("place of birth", 218, "In what city was ", " born?", ("city", "born")),
    Relation("father", 257, "Who is the father of ", "?", ("father",)),
    Relation("mother", 292, "Who is the mother of ", "?", ("mother",)),
    Relation("capital", 422, "What is the capital of ", "?", ("capital",)),
    Relation("color", 472, "What color is ", "?", ("color",)),
    Relation("author", 484, "Who is the author of ", "?", ("author",)),
    Relation("director", 526, "Who was the director of ", "?", ("director",)),
    Relation("screenwriter", 533, "Who was the screenwriter for ", "?", ("screenwriter",)),
    Relation("sport", 560, "What sport does ", " play?", ("sport", "play")),
    Relation("composer", 639, "Who was the composer of ", "?", ("composer",)),
)
_BY_NAME = {relation.name: relation for relation in RELATIONS}
BY_NUMBER = {str(relation.number): relation for relation in RELATIONS}


def with_property_words(row: dict[str, object]) -> dict[str, object]:
    """The row with the words that name its property, where its question is the sentence of its relation."""
    name, question = row.get("relation"), row.get("question")
    relation = _BY_NAME.get(name) if isinstance(name, str) else None
    if relation is None or row.get("property_words") or not isinstance(question, str):
        return row
    return row | {"property_words": [*relation.words]} if relation.asks(question.strip()) else row


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
