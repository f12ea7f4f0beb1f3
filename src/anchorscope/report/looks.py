"""How every line looks: one table of looks per kind of chart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from anchorscope.report.palette import (
    A_ANCHORED,
    CONTROL_GREY,
    GROUPS,
    INK,
    Q_ANCHORED,
    SITE_COLOURS,
    dataset_styles,
    display_name,
)

DASHED, DOTTED = "7 3.5", "1.5 3"
RANDOM_WORDS = "Random words cut instead"


@dataclass(frozen=True)
class Look:
    """How a line looks, and what it is called."""

    name: str
    colour: str
    dash: str = ""
    """Lengths of strokes and gaps in pixels."""
    marker: str = ""
    width: float = 2.0
    quiet: bool = False
    """A control or baseline: thin, without a band."""
    entry: str = ""
    """The name of the legend's entry that it shares with other lines, such as the same control of other datasets."""
    about: Mapping[str, str] = field(default_factory=dict)
    """The dataset and group that it shows."""

    def of_few(self) -> "Look":
        """Thin and dotted, for a line that rests on too few items to have an interval."""
        return replace(self, dash="1.5 4", width=1.2, marker="")

    def style(self) -> dict[str, Any]:
        """As Matplotlib takes it: in points, three quarters of a pixel each, and with dashes counted in line widths."""
        width = 0.9 * self.width
        dashes = tuple(float(one) / self.width * 0.75 for one in self.dash.split())
        style: dict[str, Any] = {"color": self.colour, "linewidth": width, "linestyle": (0, dashes) if dashes else "-"}
        if self.marker:
            style |= {"marker": self.marker, "markersize": 4.2, "markeredgewidth": 0.0}
        return style


def group_line(datasets: Sequence[str]) -> pl.Expr:
    """The look of every row of curves.csv; that of a random control ends with an r."""
    group = pl.col("group").replace_strict({Q_ANCHORED: "q", A_ANCHORED: "a"}, return_dtype=pl.String)
    random = pl.when(pl.col("intervention") == "random").then(pl.lit("r")).otherwise(pl.lit(""))
    numbers = {name: str(place) for place, name in enumerate(datasets)}
    return group + pl.col("dataset").replace_strict(numbers, default=None, return_dtype=pl.String) + random


def group_looks(datasets: Sequence[str]) -> dict[str, Look]:
    """Both groups of every dataset, and the random control of each; markers where datasets must be told apart."""
    looks: dict[str, Look] = {}
    for group in GROUPS:
        for number, (dataset, style) in enumerate(dataset_styles(datasets).items()):
            name = f"{group} ({display_name(dataset)})"
            about = {"dataset": dataset, "group": group}
            marker = style.marker if len(datasets) > 1 else ""
            dash = DASHED if group == A_ANCHORED else ""
            looks[f"{group[0].lower()}{number}"] = Look(name, style.colour, dash, marker, about=about)
    controls = {
        f"{key}r": Look(f"Random, {look.name}", CONTROL_GREY, DOTTED, width=1.3, quiet=True, entry=RANDOM_WORDS)
        for key, look in looks.items()
    }
    return looks | controls


@dataclass(frozen=True)
class PartLook:
    """How one of the four parts is filled: colours that the colour-blind can tell apart, hatches for print."""

    colour: str
    hatch: str = ""


PART_LOOKS = {
    "together": PartLook("#0072b2"),
    "question": PartLook("#e69f00", "//"),
    "answer": PartLook("#56b4e9", ".."),
    "either": PartLook("#cccccc", "xx"),
}
"""Of the palette by Okabe and Ito."""


BASELINES: Mapping[str, str] = {
    "relation-only": "relation only",
    "words": "words of question and answer",
    "confidence-mean": "model's confidence, mean",
    "confidence-min": "model's confidence, minimum",
}
WITHIN = "within-relation"
_BASELINE_LOOKS = {
    "relation-only": (CONTROL_GREY, DOTTED),
    "words": ("#4f2812", "8 3"),
    "confidence-mean": ("#54208a", "8 3 1.5 3"),
    "confidence-min": ("#ee4d8e", "5 2 1.5 2 1.5 2"),
}
_SITE_MARKERS = {"attention": "s", "mlp": "o", "residual": "^"}


def probe_looks(sites: Sequence[str], headline: str) -> dict[str, Look]:
    """Probes of all sites, the headline site's within relations, and the baselines."""
    looks = {
        site: Look(f"Probe at {site}", SITE_COLOURS.get(site, "#007f8c"), marker=_SITE_MARKERS.get(site, "D"))
        for site in sites
    }
    looks[WITHIN] = Look(f"Probe at {headline}, within relations", INK, "3 2", width=1.4, quiet=True)
    for kind, (colour, dash) in _BASELINE_LOOKS.items():
        looks[kind] = Look(f"Baseline: {BASELINES[kind]}", colour, dash, width=1.6, quiet=True)
    return looks


SURVIVING_LOOKS = {
    "clean/transfer": Look("Untouched", INK),
    "random/transfer": Look("Random words cut, same probe", CONTROL_GREY, DOTTED, width=1.3, quiet=True),
    "knockout/refit": Look("Key words cut, probe trained again", "#11692f", "8 3", "s"),
    "knockout/transfer": Look("Key words cut, same probe", "#d4281e", marker="o"),
}
"""By intervention and kind of probe_scores.csv."""
