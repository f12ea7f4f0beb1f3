"""A run under way: its folder and recipe, the model once a pass needs it, and who runs passes."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib import metadata
from typing import Any

from anchorscope.answers.template import Template, make_template
from anchorscope.artefacts.run_folder import RunFolder
from anchorscope.artefacts.step import MadeFrom, Source, StepResult
from anchorscope.cost import ModelSize
from anchorscope.engine.sequences import SITES
from anchorscope.execute.executor import Description, Executor, LocalExecutor, describe
from anchorscope.execute.numerics import NumericsClass, refuse_other_class
from anchorscope.execute.ray_executor import RayExecutor, WarmModels, WorkerJob
from anchorscope.execute.solver import Solver, fit_device
from anchorscope.files import canonical_hash
from anchorscope.interventions.intervention import Writer
from anchorscope.models.language_model import LanguageModel, ModelIdentity
from anchorscope.models.loading import ModelFacts, read_facts
from anchorscope.models.sources import ModelFiles, is_shape, model_files, source_signature
from anchorscope.models.wrapping import wrap
from anchorscope.plan.passes import Place, Planner
from anchorscope.prepare import solver_device
from anchorscope.progress import Progress
from anchorscope.recipe import Recipe
from anchorscope.results import FirstChart
from anchorscope.steps.formats import records

MODEL_LIBRARIES = ("torch", "transformers")
"""What passes through a model are computed by."""
FIT_LIBRARIES = ("torch",)
"""What probes are fitted by."""
TABLE_LIBRARIES = (*MODEL_LIBRARIES, "numpy", "scipy")
"""What tables and experiments are computed by."""


@dataclass(frozen=True)
class ModelRecord:
    """What is known of the model without loading it again."""

    identity: ModelIdentity
    planner: Planner
    """With the number of tokens that its memory suggests."""
    numerics: NumericsClass
    """What the last digits depend on."""
    files: ModelFiles = field(default_factory=dict)
    """The files that it was loaded from; none where it was given in memory, or drawn at random."""


def worker_job(recipe: Recipe) -> WorkerJob:
    """The model of a recipe, as it is loaded."""
    return WorkerJob(recipe.model, recipe.dtype, recipe.device, recipe.trust_remote_code, recipe.threads or 0)


@dataclass
class Job:
    """One run."""

    folder: RunFolder
    recipe: Recipe
    loaded: tuple[Any, Any] | None
    """A (model, tokenizer) that is already in memory."""
    progress: Progress
    workers: RayExecutor | None = None
    """Who runs passes, where it is not this process."""
    models: WarmModels = field(default_factory=WarmModels)
    """Loads the model into this process, or has it already from an earlier run."""
    mixed: bool = False
    """Whether a run may go on with another numerics class than it was begun with."""
    first_chart: FirstChart | None = None
    """Draws the chart of a run before its controls are there; None where no page is wanted, or one is there."""
    versions: dict[str, str] = field(default_factory=dict)
    """Of the libraries that steps depend on."""

    @cached_property
    def lm(self) -> LanguageModel:
        """The model, loaded when the first step needs it."""
        lm, description = self._loaded_model
        refuse_other_class(description.numerics, self._begun_with, self.mixed, self.folder.tell)
        return lm

    @property
    def _begun_with(self) -> NumericsClass | None:
        """What the run was begun with; None where it begins now."""
        return self._record_step.value.numerics if self._record_step.is_kept else None

    @cached_property
    def _loaded_model(self) -> tuple[LanguageModel, Description]:
        if self.loaded is None:
            return self.models.load(worker_job(self.recipe), self.progress)
        lm = wrap(*self.loaded)
        return lm, describe(lm)

    @property
    def record(self) -> ModelRecord:
        """Which model this is; it is loaded only if its files are not those that were looked at before."""
        return self._record_step.value

    @cached_property
    def model_size(self) -> ModelSize:
        """What the cost of a run depends on; no weights are loaded for it."""
        is_known = self.loaded is not None or self._record_step.is_kept
        known = self.record.identity if is_known else read_facts(self.recipe.model, self.recipe.trust_remote_code)
        return ModelSize(known.parameters, known.n_layers, known.d_model)

    @cached_property
    def _record_step(self) -> StepResult:
        recipe = self.recipe
        in_memory = None if self.loaded is None else wrap(*self.loaded).fingerprint()
        seen = in_memory or source_signature(recipe.model, self._files)
        chosen = self.made_from(3, MODEL_LIBRARIES, ("model", "dtype", "device", "trust_remote_code"))
        made_from = replace(chosen, options={**chosen.options, "files": seen})
        return StepResult(self.folder, "model", (), made_from, records(ModelRecord), self._look_at_model)

    @cached_property
    def _files(self) -> ModelFiles | None:
        """Hashed before they are loaded."""
        return None if self.loaded is not None else model_files(self.recipe.model)

    def _look_at_model(self) -> ModelRecord:
        found = self._loaded_model[1] if self.workers is None else self.executor.describe()
        files = self._files  # a hub's id may have been fetched just now
        if files is None and self.loaded is None:
            files = model_files(self.recipe.model)
        return ModelRecord(found.identity, found.planner, found.numerics, files or {})

    @cached_property
    def model(self) -> Source:
        """The model as something that steps depend on: its weights, tokenizer, precision and place."""
        identity = asdict(self.record.identity)
        for name in ("name", "source"):
            identity.pop(name)  # what it is called changes no number
        return Source("model", canonical_hash([identity, self.recipe.batch_tokens, self.recipe.threads]))

    @cached_property
    def executor(self) -> Executor:
        """Runs passes; the model is loaded when the first one comes."""
        if self.workers is not None:
            self.workers.begin_run(self.folder.work, self.folder.tell, self._lowered, lambda: self._begun_with)
            return self.workers
        return LocalExecutor(lambda: self.lm, self._lowered)

    def _lowered(self, tokens: int) -> None:
        self.folder.remember("batch_tokens", min(tokens, self.batch_tokens[1]))

    @property
    def planner(self) -> Planner:
        """Plans passes, with the number of tokens that run together: found once, and lowered where memory ran out."""
        return replace(self.record.planner, batch_tokens=self.batch_tokens[1])

    @property
    def batch_tokens(self) -> tuple[int, int]:
        """How many tokens run together: what the run began with, and now."""
        first = self.recipe.batch_tokens or self.record.planner.batch_tokens
        return first, min(first, self.folder.remembered("batch_tokens") or first)

    def writer(self) -> Writer:
        """The tokenizer and the template of the questions."""
        side = self.text_side
        return Writer(side.tokenizer, make_template(self.recipe.prompt, side.tokenizer, side.needs_bos))

    @cached_property
    def text_side(self) -> LanguageModel | ModelFacts:
        """What knows the tokenizer: the model, or where others run it, its files without the weights."""
        if self.workers is None:
            return self.lm
        return read_facts(self.recipe.model, self.recipe.trust_remote_code)

    @cached_property
    def template(self) -> StepResult:
        """The text around every question; written down where states are kept, as a detector must know it."""
        made_from = self.made_from(1, MODEL_LIBRARIES, ("prompt",))
        form = records(Template)
        return StepResult(self.folder, "template", (self.model,), made_from, form, lambda: self.writer().template)

    @property
    def positions(self) -> tuple[str, ...]:
        """Where probes read: at the final token always, and at the headline position."""
        return tuple(dict.fromkeys(("final", self.recipe.position)))

    @property
    def headline(self) -> tuple[int, int]:
        """(position, site) of the chart, as indices."""
        return self.positions.index(self.recipe.position), SITES.index(self.recipe.site)

    @property
    def solver(self) -> str:
        """Where this process computes what is not a pass."""
        return solver_device(self.recipe.device)

    @property
    def cut_places(self) -> list[Place]:
        """(position, site) of the states under cuts that are kept: all places, or the headline."""
        if "states-cut" not in self.recipe.keep:
            return [self.headline]
        return [(position, site) for position in range(len(self.positions)) for site in range(len(SITES))]

    @property
    def is_shape(self) -> bool:
        """Whether the model has random weights."""
        return is_shape(self.recipe.model)

    @property
    def model_name(self) -> str:
        """It stands in the tables, and the model's key does not know it."""
        return self.record.identity.name

    @property
    def fit_device(self) -> str:
        """Where probes are fitted and tables resampled."""
        return fit_device(self.solver, None if self.workers is None else self.record.numerics)

    @property
    def fits(self) -> Solver:
        """Who fits probes and resamples tables, and on which device."""
        return Solver(self.fit_device, None if self.workers is None else self.executor, self.progress)

    def forget_states(self) -> None:
        """Removes the states that workers wrote to the run folder."""
        if self.workers is not None and "executor" in self.__dict__:
            self.executor.forget_states()

    def made_from(self, epoch: int, libraries: Sequence[str], options: Sequence[str]) -> MadeFrom:
        """What a step is made from: its code's epoch, libraries, and options, of the recipe or of this run."""
        values = {name: getattr(self.recipe if name in Recipe.model_fields else self, name) for name in options}
        for name in set(libraries) - set(self.versions):  # once a run: a package's whole description is parsed for it
            self.versions[name] = metadata.version(name)
        return MadeFrom(epoch, values, {name: self.versions[name] for name in libraries})
