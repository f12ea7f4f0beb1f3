"""A run under way: its folder and recipe, what is known of the model, and who runs passes."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib import metadata
from typing import Any

import polars as pl
import torch

from anchorscope.answers.template import make_template
from anchorscope.artefacts.formats import records
from anchorscope.artefacts.run_folder import RunFolder
from anchorscope.artefacts.sealed_folder import MANIFEST
from anchorscope.artefacts.step import Source, StepResult
from anchorscope.cost import ModelSize
from anchorscope.engine.sequences import SITES
from anchorscope.execute.executor import Description, Executor, LocalExecutor
from anchorscope.execute.numerics import NumericsClass
from anchorscope.execute.solver import Solver, fit_device
from anchorscope.files import canonical_hash
from anchorscope.interventions.intervention import Writer
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.loading import BALANCED, ModelFacts, read_facts
from anchorscope.models.sources import is_shape, model_files, source_signature
from anchorscope.plan.passes import Place, Planner
from anchorscope.progress import Progress
from anchorscope.recipe import Recipe

MODEL_LIBRARIES = ("torch", "transformers")
"""What passes through a model are computed by."""


@dataclass
class Job:
    """One run."""

    folder: RunFolder
    recipe: Recipe
    executor: Executor
    """Runs passes; the model is loaded when the first one comes."""
    progress: Progress
    in_memory: bool = False
    """Whether the model was given as an object."""
    for_detectors: bool = False
    """Whether only what detectors read is made."""
    began: float = field(default_factory=time.monotonic)
    """When the command began."""
    versions: dict[str, str] = field(default_factory=dict)
    """Of the libraries that steps depend on."""
    first_curves: dict[str, tuple[pl.DataFrame, tuple[int, ...]]] = field(default_factory=dict)
    """What the first chart shows: every dataset's curves, and its reference layers."""

    def __post_init__(self) -> None:
        self.executor.begin_run(self.folder.work, self.folder.tell, self._lower_tokens, self._begun_with)

    # The model.

    @property
    def record(self) -> Description:
        """Which model this is; it is loaded only if its files are not those that were described before."""
        return self._record_step.value

    @cached_property
    def _record_step(self) -> StepResult:
        files = None if self.in_memory else model_files(self.recipe.model)  # hashed before they are loaded

        def describe_model() -> Description:
            described = self.executor.describe()
            fetched = files is None and not self.in_memory  # a hub's id
            return replace(described, files=(model_files(self.recipe.model) if fetched else files) or {})

        chosen = self.made_from(3, MODEL_LIBRARIES, ("model", "dtype", "device", "trust_remote_code"))
        if self.in_memory:
            weights: str | None = self.executor.describe().identity.fingerprint
        else:
            weights = source_signature(self.recipe.model, files)
        chosen["options"]["files"] = weights
        return StepResult(self.folder, "model", (), records(Description), describe_model, **chosen)

    def forget_results(self) -> None:
        """The model is described again."""
        self.__dict__.pop("_record_step", None)

    def _begun_with(self) -> NumericsClass | None:
        """What the run was begun with; None where it begins now."""
        return self.record.numerics if self._record_step.is_kept else None

    @cached_property
    def model(self) -> Source:
        """The model as something that steps depend on: its weights, tokenizer, precision and device."""
        identity = asdict(self.record.identity)
        for name in ("name", "source"):
            identity.pop(name)  # what it is called changes no number
        return Source("model", canonical_hash([identity, self.recipe.batch_tokens, self.recipe.threads]))

    @cached_property
    def _facts(self) -> ModelFacts:
        """What the model's files say; no weights are loaded."""
        return read_facts(self.recipe.model, self.recipe.trust_remote_code)

    @property
    def text_side(self) -> LanguageModel | ModelFacts:
        """What knows the tokenizer."""
        if self.in_memory and isinstance(self.executor, LocalExecutor):
            return self.executor.worker.lm
        return self._facts

    @property
    def model_size(self) -> ModelSize:
        """What the cost of a run depends on."""
        facts = self.record.identity if self.in_memory or self._record_step.is_kept else self._facts
        return ModelSize(facts.parameters, facts.n_layers, facts.d_model)

    @property
    def planner(self) -> Planner:
        """Plans passes, with the number of tokens that run together: found once, and lowered where memory ran out."""
        return replace(self.record.planner, batch_tokens=self.batch_tokens[1])

    @property
    def batch_tokens(self) -> tuple[int, int]:
        """How many tokens run together: what the run began with, and now."""
        first = self.recipe.batch_tokens or self.record.planner.batch_tokens
        return first, min(first, self.folder.remembered("batch_tokens") or first)

    def _lower_tokens(self, tokens: int) -> None:
        self.folder.remember("batch_tokens", min(tokens, self.batch_tokens[1]))

    def writer(self) -> Writer:
        """The tokenizer and the template of the questions."""
        tokenizer = self.text_side.tokenizer
        return Writer(tokenizer, make_template(self.recipe.prompt, tokenizer, self.text_side.needs_bos))

    @property
    def fits(self) -> Solver:
        """Who fits probes and resamples tables, and on which device."""
        return Solver(self.fit_device, None if self.executor.is_local else self.executor, self.progress)

    @property
    def has_first_chart(self) -> bool:
        """Whether a chart is drawn before the controls are there: where a page is wanted, and none is there."""
        return self.recipe.report and not self.for_detectors and MANIFEST not in self.folder.results

    # What steps depend on, beside options of the recipe.

    @property
    def positions(self) -> tuple[str, ...]:
        """Where probes read: at the final token always, and at the headline position."""
        return tuple(dict.fromkeys(("final", self.recipe.position)))

    @property
    def places(self) -> list[Place]:
        """Every (position, site), as indices."""
        return [(position, site) for position in range(len(self.positions)) for site in range(len(SITES))]

    @property
    def headline(self) -> Place:
        """That of the chart."""
        return self.positions.index(self.recipe.position), SITES.index(self.recipe.site)

    @property
    def cut_places(self) -> list[Place]:
        """Those where states under cuts are kept: all, or the headline."""
        return self.places if "states-cut" in self.recipe.keep else [self.headline]

    @property
    def is_shape(self) -> bool:
        """Whether the model has random weights."""
        return is_shape(self.recipe.model)

    @property
    def model_name(self) -> str:
        """It is in the tables, and the model's key does not depend on it."""
        return self.record.identity.name

    @property
    def solver(self) -> str:
        """Where this process computes what is not a pass."""
        device = self.recipe.device
        if device.startswith("cuda") and not torch.cuda.is_available():
            return "cpu"  # other machines run the model
        return "cuda" if device == BALANCED else device

    @property
    def fit_device(self) -> str:
        """Where probes are fitted and tables resampled."""
        return fit_device(self.solver, None if self.executor.is_local else self.record.numerics)

    def made_from(self, epoch: int, libraries: Sequence[str], options: Sequence[str]) -> dict[str, Any]:
        """What a step is made from: its code's epoch, libraries, and options, of the recipe or of this run."""
        values = {name: getattr(self.recipe if name in Recipe.model_fields else self, name) for name in options}
        for name in set(libraries) - set(self.versions):  # once a run: a package's whole description is parsed for it
            self.versions[name] = metadata.version(name)
        versions = {name: self.versions[name] for name in libraries}
        return {"epoch": epoch, "options": values, "libraries": versions}
