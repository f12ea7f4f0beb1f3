"""Which questions lean on the question: features of an item that might go with its share.

Each feature splits the items in two, by its median or by kind, without a look at labels or states.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import svds

from anchorscope.datasets.question import log_popularity
from anchorscope.datasets.text import words
from anchorscope.items import Item

FEWEST = 20
"""Items that a set needs on either side."""
_ITEMS_PER_FEATURE = 20  # as many items stand behind each feature that is taken out


@dataclass(frozen=True)
class Feature:
    """A feature that splits the items."""

    name: str
    high: NDArray[np.bool_]
    """Who is above the median, or of the kind."""
    low: NDArray[np.bool_]
    """Who is below it, or of another kind."""


def answer_type(item: Item) -> str:
    """What an answer is by its letters: a number, a name, or other words."""
    text = item.answer.text.strip()
    if any(letter.isdigit() for letter in text):
        return "number"
    return "name" if text[:1].isupper() else "words"


def features_of(items: Sequence[Item], confidence: NDArray[np.floating]) -> list[Feature]:
    """All features that split these items into sets large enough; `confidence` is NaN where unknown."""
    known = {
        "subject popularity": np.array([log_popularity(item.question) for item in items]),
        "answer length": np.array([float(len(item.answer.ids)) for item in items]),
        "confidence": confidence,
        "question length": np.array([float(len(words(item.question.question))) for item in items]),
        "key tokens": np.array([float(len(item.located.question_tokens)) for item in items]),
    }
    found = [_by_median(name, values) for name, values in known.items()]
    kinds = {
        "answer type": [answer_type(item) for item in items],
        "relation": [item.question.relation or "" for item in items],
    }
    for name, values in kinds.items():
        found += [
            Feature(f"{name}: {kind}", np.array(values) == kind, np.array(values) != kind)
            for kind in sorted(set(values))
            if kind
        ]
    return [one for one in found if min(one.high.sum(), one.low.sum()) >= FEWEST]


def _by_median(name: str, values: NDArray[np.floating]) -> Feature:
    known = np.isfinite(values)
    middle = np.median(values[known]) if known.any() else np.nan
    high = known & (values > middle)
    low = known & (values < middle)
    # Whole numbers tie at the median: ties go where they even the sets out.
    tied = known & (values == middle)
    return Feature(name, high | tied, low) if high.sum() < low.sum() else Feature(name, high, low | tied)


def taken_out(items: Sequence[Item], confidence: NDArray[np.floating]) -> tuple[str, NDArray[np.float64]]:
    """What the words, the relation and the confidence say of every item, standardised, and how that is called.

    Words are reduced to their leading directions over the items (latent semantic analysis), relations to columns of
    their own.
    """
    n = len(items)
    room = max(2, n // _ITEMS_PER_FEATURE)
    columns: list[NDArray[np.floating]] = [_leading_words(items, room)]
    names = ["words"]
    if np.isfinite(confidence).all():
        columns.append(confidence[:, None])
        names.append("confidence")
    relations = [item.question.relation or "" for item in items]
    kinds = sorted({one for one in relations if relations.count(one) >= 2})[:room]
    if len(kinds) > 1:
        columns.append(np.array([[float(one == kind) for kind in kinds] for one in relations]))
        names.append("relation")
    table = np.concatenate(columns, axis=1)
    deviation = table.std(axis=0)
    return ", ".join(names), (table - table.mean(axis=0)) / np.where(deviation > 1e-12, deviation, 1.0)


def _leading_words(items: Sequence[Item], room: int) -> NDArray[np.float64]:
    """The items along the leading directions of their words, rare words counting more."""
    texts = [
        [*(f"q {one}" for one in words(item.question.question)), *(f"a {one}" for one in words(item.answer.text))]
        for item in items
    ]
    places: dict[str, int] = {}
    rows, columns = [], []
    for row, text in enumerate(texts):
        for one in dict.fromkeys(text):  # not a set: its order differs between processes, and so would the last digit
            rows.append(row)
            columns.append(places.setdefault(one, len(places)))
    table = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(items), max(len(places), 1)))
    table = table * np.log(len(items) / np.asarray(table.sum(axis=0)).clip(min=1))[None, :]
    rank = min(room, min(table.shape) - 1)
    if rank < 1:
        return np.zeros((len(items), 1))
    left, values, _ = svds(sp.csr_array(table), k=rank, v0=np.ones(min(table.shape)), solver="arpack")
    return np.asarray(left * values)
