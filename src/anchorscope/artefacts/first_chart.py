"""The first chart: ΔP as soon as the knockout is measured, drawn again when the random control is measured.

It has the path of the report's chart, is marked as preliminary, and is listed in the index like any other file of the
run: the report replaces it, and `verify` accepts a run that was stopped before that.
"""

import io
from dataclasses import dataclass, field

import polars as pl

from anchorscope.artefacts.run_folder import MANIFEST, RunFolder
from anchorscope.recipe import Recipe

PLACE = "figures/delta_p.png"


@dataclass
class FirstChart:
    """The chart of all datasets that were measured so far."""

    folder: RunFolder
    curves: dict[str, pl.DataFrame] = field(default_factory=dict)
    layers: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def draw(self, dataset: str, curves: pl.DataFrame, layers: tuple[int, ...], n_layers: int) -> None:
        """Draws it with the curves of one more dataset, or with more curves of one that it has."""
        from anchorscope.report.charts.delta_p import DeltaPChart  # only here: matplotlib takes a second

        is_first, has_random = not self.curves, "random" in set(curves["intervention"])
        if dataset in self.curves and "random" in set(self.curves[dataset]["intervention"]):
            return  # nothing new to show
        self.curves[dataset], self.layers[dataset] = curves, layers
        waiting = "the last controls are" if has_random else "controls are"
        chart = DeltaPChart.preliminary(
            pl.concat(list(self.curves.values())),
            self.layers,
            n_layers,
            f"PRELIMINARY: {waiting} still running; the report replaces this chart.",
        )
        content = io.BytesIO()
        chart.print_png(content)
        self.folder.write_early(PLACE, content.getvalue())
        if is_first:
            self.folder.progress.note(f"first chart: {self.folder.path / PLACE} (preliminary, controls still running)")


def first_chart(folder: RunFolder, recipe: Recipe) -> FirstChart | None:
    """Where a page is wanted and the folder has no finished run, whose chart would be replaced too early."""
    return FirstChart(folder) if recipe.report and MANIFEST not in folder.index.results else None
