"""An answer is right if it is an accepted one, letter by letter but for case and spaces."""

from collections.abc import Sequence

from anchorscope.answers.grade import Grader


def grade(answer: str, accepted: Sequence[str], question: str | None) -> bool:
    """Whether the answer is one of the accepted ones."""
    return folded(answer) in map(folded, accepted)


def folded(text: str) -> str:
    """The text without case and without spaces that say nothing."""
    return " ".join(text.casefold().split())


EXACT_MATCH = Grader("exact-match", grade)
