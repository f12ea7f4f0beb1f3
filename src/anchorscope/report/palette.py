"""Colours, line styles and display names: the same in every figure.

The group is carried by the line style (Q-Anchored solid, A-Anchored dashed) and the dataset by colour and marker, so
that a grey print loses nothing. The four datasets of the paper keep the names of the paper's colours, in shades that
differ in lightness too: readers with any of the three kinds of colour blindness tell the four solid lines from each
other, and the four dashed ones (a test simulates them). Every other dataset takes the next free pair, always the same
pair for the same list of datasets.
"""

from collections.abc import Sequence
from dataclasses import dataclass

Q_ANCHORED = "Q-Anchored"
A_ANCHORED = "A-Anchored"
GROUPS = (Q_ANCHORED, A_ANCHORED)

LINE_STYLES: dict[str, str | tuple[int, tuple[float, ...]]] = {Q_ANCHORED: "-", A_ANCHORED: (0, (4.0, 1.8))}

# The greys stay clearly lighter than every series, so that controls and marks never look like a result.
CONTROL_GREY = "#7a7a7a"
INK = "#222222"
QUIET_INK = "#5a5a5a"

SITE_COLOURS = {"attention": "#e07b00", "mlp": "#2b83e6", "residual": "#11692f"}

_NAMES = {"popqa": "PopQA", "triviaqa": "TriviaQA", "hotpotqa": "HotpotQA", "nq": "NQ", "atlas": "Atlas"}

_FIXED = {
    "popqa": ("#2b83e6", "#e07b00", "o"),  # blue, orange
    "triviaqa": ("#11692f", "#d4281e", "s"),  # green, red
    "hotpotqa": ("#54208a", "#4f2812", "^"),  # purple, brown
    "nq": ("#ee4d8e", "#808080", "D"),  # pink, gray
    "atlas": ("#007f8c", "#a07800", "v"),
}

# Further pairs: darker members of the same family, a cool one for Q and a warm one for A.
_OTHER_PAIRS = (
    ("#393b79", "#e6550d", "P"),
    ("#5d7a2b", "#843c39", "X"),
    ("#7b4173", "#a8821d", "<"),
    ("#3182bd", "#ad494a", ">"),
)


@dataclass(frozen=True)
class DatasetStyle:
    """How one dataset is drawn."""

    q_colour: str
    """Colour of its Q-Anchored lines."""
    a_colour: str
    """Colour of its A-Anchored lines."""
    marker: str
    """Marker that tells the datasets apart in grey."""

    def colour(self, group: str) -> str:
        """The colour of one group's lines."""
        return self.q_colour if group == Q_ANCHORED else self.a_colour


def display_name(dataset: str) -> str:
    """The name a reader knows; a dataset of the user's own keeps the name it came with."""
    return _NAMES.get(dataset, dataset)


def dataset_styles(datasets: Sequence[str]) -> dict[str, DatasetStyle]:
    """Colours and marker of every dataset, in order; unknown ones share the other pairs among themselves."""
    chosen: dict[str, DatasetStyle] = {}
    unknown = 0
    for dataset in datasets:
        if dataset in _FIXED:
            chosen[dataset] = DatasetStyle(*_FIXED[dataset])
        else:
            chosen[dataset] = DatasetStyle(*_OTHER_PAIRS[unknown % len(_OTHER_PAIRS)])
            unknown += 1
    return chosen
