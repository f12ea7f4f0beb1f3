"""The six kinds of item: where the truth of an answer comes from, crossed with whether it is true.

An answer is three words: a first word and a phrase of two.

| pathway | true | false | what can be known |
|---|---|---|---|
| question | right object + neutral phrase | wrong object + neutral phrase | the object is right for one question, wrong for another |
| answer | filler + always phrase | filler + never phrase | the phrase settles it, and no question asks for a filler |
| both | right object + always phrase | wrong object + never phrase | question and phrase agree; either would do |

In `question` items every object is as often true as false, so an answer alone says nothing; nor does a question, because
each is asked with true and with false answers. In `answer` items the question is drawn without regard to the answer.
"""  # noqa: E501 - a table cannot be broken

from dataclasses import dataclass

PATHWAYS = ("question", "answer", "both")
"""Where the truth of an answer can be known from."""
NEUTRAL, ALWAYS, NEVER = "neutral", "always", "never"
"""What a phrase says of the answer it ends: nothing; it is right whatever the question; it is wrong whatever it is."""
RIGHT, WRONG, FILLER = "right object", "wrong object", "filler"
"""What the first word of an answer is."""


@dataclass(frozen=True)
class Cell:
    """One kind of item."""

    pathway: str
    truthful: bool

    @property
    def first_word(self) -> str:
        """What the answer begins with."""
        return FILLER if self.pathway == "answer" else RIGHT if self.truthful else WRONG

    @property
    def phrase(self) -> str:
        """What kind of phrase it ends with."""
        return NEUTRAL if self.pathway == "question" else ALWAYS if self.truthful else NEVER

    @property
    def name(self) -> str:
        """As in item ids: `question-true`."""
        return f"{self.pathway}-{str(self.truthful).lower()}"


CELLS = tuple(Cell(pathway, truthful) for pathway in PATHWAYS for truthful in (True, False))
"""All six, pathway by pathway, true before false."""
