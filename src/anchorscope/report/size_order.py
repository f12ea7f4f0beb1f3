"""Several runs in order of size: which of them can be compared, and what each is called."""

from collections.abc import Sequence
from dataclasses import dataclass

from anchorscope.report.findings import Findings
from anchorscope.report.verdicts import TWO_SIZES
from anchorscope.report.wording import number


@dataclass(frozen=True)
class OrderedRuns:
    """The runs that can be compared, first to last."""

    runs: tuple[Findings, ...]
    left_out: tuple[Findings, ...]
    """Runs with random weights: no evidence about anything."""
    by_size: bool
    """Whether the last is larger than the first."""

    @property
    def datasets(self) -> tuple[str, ...]:
        """The datasets that all of them have."""
        first = self.runs[0].datasets if self.runs else ()
        return tuple(name for name in first if all(name in run.datasets for run in self.runs))

    @property
    def names(self) -> tuple[str, ...]:
        """What each run is called, with its size where that tells them apart."""
        return tuple(run.model + (f" ({size(run.parameters)})" if self.by_size else "") for run in self.runs)

    @property
    def along(self) -> str:
        """What changes from the first run to the last."""
        if self.by_size:
            return "with size"
        same = len({run.parameters for run in self.runs}) == 1 and self.runs[0].parameters > 0
        return "from run to run" if same else "from model to model"


def order_by_size(runs: Sequence[Findings]) -> OrderedRuns:
    """Order the runs; those with random weights are set aside."""
    real = [run for run in runs if not run.random_weights]
    sizes = [run.parameters for run in real]
    by_size = bool(sizes) and min(sizes) > 0 and max(sizes) >= TWO_SIZES * min(sizes)
    if by_size:
        real.sort(key=lambda run: run.parameters)
    return OrderedRuns(tuple(real), tuple(run for run in runs if run.random_weights), by_size)


def size(parameters: int) -> str:
    """Parameters as people say them: 135 M, 1.2 B."""
    if parameters <= 0:
        return "size unknown"
    billions = parameters / 1e9
    if billions >= 0.9995:
        return f"{number(billions, 1 if billions < 9.95 else 0)}\u00a0B"
    return f"{number(parameters / 1e6, 0)}\u00a0M" if parameters >= 1e6 else f"{number(parameters / 1e3, 0)}\u00a0k"
