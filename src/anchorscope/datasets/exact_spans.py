"""The user's own exact words of a question: pieces of its text, or places in it.

["Dracula", "wrote"] marks every place where these stand, letter for letter; [[10, 17]] marks characters [start, end) of
the question as the file writes it. Both become places in the question as it is asked, with single spaces.
"""

from collections.abc import Sequence

from anchorscope.datasets.bad_rows import Unusable, shown

Span = tuple[int, int]
"""Characters [start, end)."""


def spans_of(written: str, marked: Sequence[object]) -> tuple[Span, ...]:
    """The marked places in the question of single spaces, sorted, with overlapping ones made one."""
    text = " ".join(written.split())
    places: list[Span] = []
    for mark in marked:
        if isinstance(mark, str):
            places += _occurrences(text, " ".join(mark.split()))
        else:
            places.append(_place(written, mark))
    merged: list[Span] = []
    for start, end in sorted(places):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)


def _occurrences(text: str, piece: str) -> list[Span]:
    """Every place where the piece stands."""
    if not piece:
        raise Unusable("exact_question holds an empty string")
    found = []
    start = text.find(piece)
    while start >= 0:
        found.append((start, start + len(piece)))
        start = text.find(piece, start + len(piece))
    if not found:
        raise Unusable(f"exact_question: {shown(piece)} does not stand in the question {shown(text)}")
    return found


def _place(written: str, mark: object) -> Span:
    """A [start, end) pair of the written text as a place in the text of single spaces."""
    if not isinstance(mark, list | tuple) or [type(bound) for bound in mark] != [int, int]:
        raise Unusable(f"exact_question must hold pieces of the question or [start, end] pairs, not {shown(mark)}")
    start, end = mark
    if not 0 <= start < end <= len(written):
        raise Unusable(
            f"exact_question: {shown([*mark])} is no [start, end) in a question of {len(written)} characters"
        )
    piece = written[start:end]
    if not piece.strip():
        raise Unusable(f"exact_question: {shown([*mark])} marks nothing but white space")
    start += len(piece) - len(piece.lstrip())
    # What stands before the place decides how far it moved.
    moved = len(" ".join((written[:start] + "x").split())) - 1
    return moved, moved + len(" ".join(piece.split()))
