"""Colours, line styles and display names: the same in every figure.

A dataset has one colour and one marker; the group is carried by the line style (Q-Anchored solid, A-Anchored dashed),
so that a grey print loses nothing. The colours differ in lightness too: readers with any of the three kinds of colour
blindness can tell the paper's four datasets apart (a test simulates them). Every other dataset takes the next colour
that none of these needs, always the same for the same list of datasets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

Q_ANCHORED = "Q-Anchored"
A_ANCHORED = "A-Anchored"
GROUPS = (Q_ANCHORED, A_ANCHORED)

LINE_STYLES: dict[str, str | tuple[int, tuple[float, ...]]] = {
    Q_ANCHORED: "-",
    A_ANCHORED: (0, (4.0, 1.8)),
}
FEW_CLUSTERS: dict[str, Any] = {"linewidth": 0.9, "alpha": 0.45, "marker": ""}
"""A line of so few clusters that it has no band keeps its colour and stroke, but is thin and pale."""

# The greys stay clearly lighter than every series, so that controls and marks never look like a result.
CONTROL_GREY = "#7a7a7a"
INK = "#222222"
QUIET_INK = "#5a5a5a"

PART_COLOURS = {
    "together": "#0072b2",
    "question": "#e69f00",
    "answer": "#56b4e9",
    "either": "#cccccc",
}
"""Of the four parts of the evidence, from the palette by Okabe and Ito: the colour-blind can tell them apart."""
PART_HATCHES = {"together": "", "question": "//", "answer": "..", "either": "xx"}
"""For print."""
BASELINES = {
    "relation-only": "relation only",
    "words": "words of question and answer",
    "confidence-mean": "model's confidence, mean",
    "confidence-min": "model's confidence, minimum",
}
"""What predicts truth without a probe, as probe_scores.csv names it, in words."""

_NAMES = {
    "popqa": "PopQA",
    "triviaqa": "TriviaQA",
    "hotpotqa": "HotpotQA",
    "nq": "NQ",
    "atlas": "Atlas",
}

_FIXED = {
    "popqa": ("#2b83e6", "o"),  # blue
    "triviaqa": ("#11692f", "s"),  # green
    "hotpotqa": ("#54208a", "^"),  # purple
    "nq": ("#ee4d8e", "D"),  # pink
    "atlas": ("#007f8c", "v"),
}
_OTHERS = (("#b0560f", "P"), ("#5d7a2b", "X"), ("#393b79", "<"))
"""Taken when those of the datasets with a fixed colour are in use."""


@dataclass(frozen=True)
class DatasetStyle:
    """How one dataset is drawn."""

    colour: str
    marker: str
    """Tells the datasets apart in grey."""


def display_name(dataset: str) -> str:
    """The name a reader knows; a dataset of the user's own keeps the name it came with."""
    return _NAMES.get(dataset, dataset)


def dataset_styles(datasets: Sequence[str]) -> dict[str, DatasetStyle]:
    """Colour and marker of every dataset, in order; one of the user's own takes the next look that is free."""
    unused = [look for name, look in _FIXED.items() if name not in datasets]
    free = cycle([*unused, *_OTHERS])
    return {
        name: DatasetStyle(*(_FIXED[name] if name in _FIXED else next(free)))
        for name in datasets
    }
