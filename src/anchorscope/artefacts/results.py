"""What a run's datasets hand over at its end, and what is known of the run itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from torch import Tensor

from anchorscope.answers.template import Template
from anchorscope.artefacts.kept_states import KeptStates
from anchorscope.models.language_model import ModelIdentity
from anchorscope.models.sources import ModelFiles
from anchorscope.recipe import Recipe


@dataclass(frozen=True)
class DatasetResult:
    """Everything that one dataset contributes to the result files."""

    name: str
    items: pl.DataFrame
    effects: pl.DataFrame
    counts: pl.DataFrame
    tables: Mapping[str, pl.DataFrame]
    """curves, curve_samples, reference_curves, probe_scores, pathways, summary, question_share with items and tests."""
    probes: Mapping[str, Tensor]
    reference_layers: tuple[int, ...]
    """l* of each fold at the headline place."""
    balanced_by: str
    """Where true and false answers were really balanced: within each `relation`, the `dataset`, or `none`."""
    grouped_by: str
    """What really kept items in one fold: `subject`, `question` (nothing but itself) or `answer`."""
    unconverged: tuple[str, ...]
    experiments: pl.DataFrame
    """Statistics of the further experiments."""
    experiment_items: pl.DataFrame
    """What they found of single items."""
    unavailable: pl.DataFrame
    """What was asked for and cannot be done on this dataset, with the reason."""
    kept: Sequence[KeptStates] = ()
    """States that are kept."""
    features: pl.DataFrame | None = None
    """What detectors read beside them, where it is kept."""
    notes: tuple[str, ...] = ()
    """What happened on the way: questions left out because they are too long, memory that ran out."""


@dataclass(frozen=True)
class LeftOut:
    """A dataset that could not be measured."""

    name: str
    reason: str
    items: pl.DataFrame
    counts: pl.DataFrame


@dataclass(frozen=True)
class RunFacts:
    """What the manifest says of a run beside its results."""

    identity: ModelIdentity
    recipe: Recipe
    inputs: Mapping[str, str]
    """sha256 of every question file, as it was when it was read."""
    batch_tokens: tuple[int, int]
    """What the run began and ended with."""
    seconds: float
    """Since the command began."""
    template: Template | None = None
    """The text around every question, where states are kept."""
    model_files: ModelFiles = field(default_factory=dict)
    """Size and sha256 of the files that the model was loaded from."""
    numerics: Mapping[str, Any] = field(default_factory=dict)
    """What the last digits hang on: device, precision, threads, versions, and the hash of a small fixed batch."""
    workers: Mapping[str, Any] | None = None
    """What became of shards and workers, where passes were not run in one process."""
