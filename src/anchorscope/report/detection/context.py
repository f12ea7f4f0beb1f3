"""What the page of `anchorscope detect` says of how its tables came about."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class DatasetFacts:
    """The answers of one dataset that detectors were trained or tested on."""

    name: str
    n_used: int
    """Answers in the balanced sample."""
    n_true: int
    """True ones among them."""
    n_graded: int
    """All answers that could be graded: the natural prevalence is measured on these."""
    natural_prevalence: float
    """Share of true answers among them."""
    target_only: bool = False
    """Whether it has too few true answers to learn from."""


@dataclass(frozen=True)
class DetectionContext:
    """Everything that is not in the tables."""

    model: str
    runs: tuple[str, ...]
    """Folders of the runs, as the command named them."""
    datasets: tuple[DatasetFacts, ...]
    seeds: tuple[int, ...]
    """Of the folds."""
    seconds: float
    command: str
    """What repeats it."""
    bundles: Mapping[str, str] = field(default_factory=dict)
    """Detectors that were saved, each with its folder."""
    warnings: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Detectors and datasets that are not in the tables, each with the reason."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Further lines of "What was run", in display order."""
