"""PopQA's sixteen relations: every question is one of sixteen sentences around its subject.

The sentence tells which words name the property that is asked for. `number` is the relation's id in PopQA (`prop_id`).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Relation:
    """A kind of fact that PopQA asks for."""

    name: str
    """PopQA's `prop`."""
    number: int
    """PopQA's `prop_id`."""
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
"""All of them."""
_BY_NAME = {relation.name: relation for relation in RELATIONS}
BY_NUMBER = {str(relation.number): relation for relation in RELATIONS}
"""The relations by `prop_id`."""


def with_property_words(row: dict[str, object]) -> dict[str, object]:
    """The row with the words that name its property, where its question is the sentence of its relation."""
    name, question = row.get("relation"), row.get("question")
    relation = _BY_NAME.get(name) if isinstance(name, str) else None
    if relation is None or row.get("property_words") or not isinstance(question, str):
        return row
    return row | {"property_words": [*relation.words]} if relation.asks(question.strip()) else row
