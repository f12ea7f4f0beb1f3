"""Several runs in the order in which they are compared: by size where sizes are known and differ, else as given."""

from collections.abc import Sequence
from dataclasses import dataclass

from anchorscope.report.findings import Findings
from anchorscope.report.wording import number

TWO_SIZES = 1.2
"""Largest over smallest number of parameters. Below it the difference lies in how parameters are counted."""


@dataclass(frozen=True)
class Lineup:
    """The runs that can be compared, first to last."""

    runs: tuple[Findings, ...]
    left_out: tuple[Findings, ...]
    """Runs with random weights: no evidence about anything."""
    by_size: bool
    """Whether the last is larger than the first."""

    @property
    def datasets(self) -> tuple[str, ...]:
        """The datasets that all of them have."""
        if not self.runs:
            return ()
        return tuple(name for name in self.runs[0].datasets if all(name in run.datasets for run in self.runs))

    @property
    def names(self) -> tuple[str, ...]:
        """What each run is called: its model, with the size where that tells them apart, numbered where it does not."""
        models = [run.model for run in self.runs]
        sizes = [f" ({size(run.parameters)})" if self.by_size else "" for run in self.runs]
        numbers = [f" (run {i + 1})" if models.count(models[i]) > 1 else "" for i in range(len(models))]
        return tuple(model + (own or told) for model, told, own in zip(models, sizes, numbers, strict=True))

    @property
    def along(self) -> str:
        """What changes from the first run to the last."""
        if self.by_size:
            return "with size"
        same = len({run.model for run in self.runs}) == 1
        return "from run to run of the same model" if same else "from model to model"


def line_up(runs: Sequence[Findings]) -> Lineup:
    """Order the runs; those with random weights are set aside."""
    real = [run for run in runs if not run.random_weights]
    sizes = [run.parameters for run in real]
    by_size = bool(sizes) and min(sizes) > 0 and max(sizes) >= TWO_SIZES * min(sizes)
    if by_size:
        real.sort(key=lambda run: run.parameters)
    return Lineup(tuple(real), tuple(run for run in runs if run.random_weights), by_size)


def size(parameters: int) -> str:
    """Parameters as people say them: 135 M, 1.2 B."""
    if parameters <= 0:
        return "size unknown"
    billions = parameters / 1e9
    if billions >= 0.9995:
        return f"{number(billions, 1 if billions < 9.95 else 0)}\u00a0B"
    return f"{number(parameters / 1e6, 0)}\u00a0M" if parameters >= 1e6 else f"{number(parameters / 1e3, 0)}\u00a0k"
