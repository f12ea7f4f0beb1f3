"""Colours, line styles and display names: the same in every figure.

The group is carried by the line style (Q-Anchored solid, A-Anchored dashed) and the dataset by colour and marker, so
that a grey print and a colour-blind reader lose nothing. The four datasets of the paper keep the paper's colours;
every other dataset takes the next free pair of the same palette, always the same pair for the same list of datasets.
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

SITE_COLOURS = {"attention": "#ff7f0e", "mlp": "#1f77b4", "residual": "#2ca02c"}

_NAMES = {"popqa": "PopQA", "triviaqa": "TriviaQA", "hotpotqa": "HotpotQA", "nq": "NQ", "atlas": "Atlas"}

_FIXED = {
    "popqa": ("#1f77b4", "#ff7f0e", "o"),
    "triviaqa": ("#2ca02c", "#d62728", "s"),
    "hotpotqa": ("#9467bd", "#8c564b", "^"),
    "nq": ("#e377c2", "#7f7f7f", "D"),
    "atlas": ("#17a2b8", "#b5a319", "v"),
}

# Further pairs: darker members of the same family, a cool one for Q and a warm one for A.
_OTHER_PAIRS = (
    ("#393b79", "#e6550d", "P"),
    ("#637939", "#843c39", "X"),
    ("#7b4173", "#bd9e39", "<"),
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
