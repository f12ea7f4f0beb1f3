"""A run under way: a row of the table of steps, the job that all datasets share, and the results of one dataset."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property, partial
from importlib import metadata
from typing import Any, get_origin, get_type_hints

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.answers.choose import QuestionSample
from anchorscope.answers.template import make_template
from anchorscope.artefacts.run_folder import RunFolder
from anchorscope.artefacts.step import Format, Source, StepResult, records, with_tensors
from anchorscope.catalogue import DETECTION_RUNS, KNOCKOUT
from anchorscope.cost import MOST_RANDOM_CUTS, ModelSize
from anchorscope.datasets.catalog import BUILT_IN, DatasetSpec
from anchorscope.datasets.files import hash_of
from anchorscope.engine.sequences import SITES
from anchorscope.errors import TooFewAnswers, UserError
from anchorscope.evidence.delta_p import Measured
from anchorscope.evidence.draws import Draws, areas
from anchorscope.evidence.effects import (
    Effect,
    Measurements,
    Scoring,
    measured_places,
    with_log_probs,
)
from anchorscope.evidence.further_runs import ItemPasses
from anchorscope.evidence_parts.parts import EvidenceItems, layer_band
from anchorscope.evidence_parts.principal import default_directions
from anchorscope.execute.executor import Description, Executor, LocalExecutor
from anchorscope.execute.numerics import NumericsClass
from anchorscope.experiments.experiment import Found, ItemValues, Statistic
from anchorscope.files import canonical_hash
from anchorscope.interventions.cuts import of_experiments, with_draws
from anchorscope.interventions.intervention import Intervention, Setting, Writer
from anchorscope.items import Item
from anchorscope.kept_states import read_kept, refuse_full_disk
from anchorscope.models.loading import BALANCED, ModelFacts, read_facts
from anchorscope.models.sources import is_shape, model_files, source_signature
from anchorscope.plan.interventions import Missing
from anchorscope.plan.passes import Place, Planner
from anchorscope.prepare import ask
from anchorscope.probes.crossfit import ProbeSet, Splits, make_splits
from anchorscope.probes.folds import grouped_folds, truth_strata
from anchorscope.progress import Progress
from anchorscope.recipe import Recipe
from anchorscope.stats.estimate import Estimate, group_weights
from anchorscope.stats.streams import priorities, stream

MODEL_LIBRARIES = ("torch", "transformers")
"""What passes through a model are computed by."""
FILE, MODEL = "file", "model"
"""What steps need that no step makes: the question file and the model."""
_CLASSES = (
    ProbeSet,
    Measurements,
    Effect,
    Missing,
    Found,
    Statistic,
    Estimate,
    ItemValues,
)
_KEPT_STEPS = {
    "states": ("clean-states", "before-answer"),
    "states-cut": ("cut-states",),
    "detection": ("detection-states",),
}


@dataclass(frozen=True)
class Step:
    """One row of the pipeline's table: what a result is made from, and how."""

    name: str
    needs: tuple[str, ...]
    """Steps before it, `FILE` or `MODEL`: the key depends on theirs."""
    options: tuple[str, ...]
    """Recipe options that change the result, or attributes of `Job` that do."""
    make: Callable[["DatasetRun"], Any]
    """Its return type says how the result is written to the run folder (`format_for`)."""
    epoch: int = 1
    """Raise it when the code comes to give other numbers: every run then makes the step again."""
    large: bool = False
    """Dropped when the run is finished, and made only where another step needs it."""
    libraries: tuple[str, ...] = ()
    """Whose versions change the result."""


def format_for(make: Callable[..., Any]) -> Format:
    """How the result of a function is written, by its return type."""
    kind = get_type_hints(make)["return"]
    is_plain = kind is QuestionSample or get_origin(kind) is list
    return records(kind) if is_plain else with_tensors(*_CLASSES)


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
    first_curves: dict[str, tuple[pl.DataFrame, tuple[int, ...]]] = field(
        default_factory=dict
    )
    """What the first chart shows: every dataset's curves, and its reference layers."""

    def __post_init__(self) -> None:
        # a package's whole description is parsed for it
        self._version_of = cache(metadata.version)

        def begun_with() -> NumericsClass | None:
            return self.record.numerics if self._record_step.is_kept else None

        def lower_tokens(tokens: int) -> None:
            # a resumed run needs it
            self.folder.notes["batch_tokens"] = min(tokens, self.batch_tokens[1])
            self.folder.save()

        self.executor.begin_run(self.folder.work, lower_tokens, begun_with)

    # The model.

    @property
    def record(self) -> Description:
        """Which model this is; it is loaded only if its files are not those that were described before."""
        return self._record_step.value

    @cached_property
    def _record_step(self) -> StepResult:
        # hashed before they are loaded
        files = None if self.in_memory else model_files(self.recipe.model)

        def describe_model() -> Description:
            described = self.executor.describe()
            fetched = files is None and not self.in_memory  # a hub's id
            return replace(
                described,
                files=(model_files(self.recipe.model) if fetched else files) or {},
            )

        chosen = self.made_from(
            4, MODEL_LIBRARIES, ("model", "dtype", "device", "trust_remote_code")
        )
        own = self.in_memory and self.executor.describe().identity.fingerprint
        chosen["options"]["files"] = own or source_signature(self.recipe.model, files)
        return StepResult(
            self.folder, "model", (), records(Description), describe_model, **chosen
        )

    def forget_results(self) -> None:
        """The model is described again."""
        self.__dict__.pop("_record_step", None)

    @cached_property
    def model(self) -> Source:
        """The model as something that steps depend on: weights, tokenizer, device, when it is compiled."""
        names = ("name", "source")  # what it is called changes no number
        identity = {
            name: value
            for name, value in asdict(self.record.identity).items()
            if name not in names
        }
        compile_from = self.record.planner.compile_from
        compiles = [] if compile_from is None else [compile_from]
        parts = [identity, self.recipe.batch_tokens, self.recipe.threads, *compiles]
        return Source("model", canonical_hash(parts))

    @cached_property
    def _facts(self) -> ModelFacts:
        """What the model's files say; no weights are loaded."""
        return read_facts(self.recipe.model, self.recipe.trust_remote_code)

    @property
    def model_size(self) -> ModelSize:
        """What the cost of a run depends on."""
        facts = (
            self.record.identity
            if self.in_memory or self._record_step.is_kept
            else self._facts
        )
        return ModelSize(facts.parameters, facts.n_layers, facts.d_model)

    @property
    def planner(self) -> Planner:
        """Plans passes, with the number of tokens that run together: found once, and lowered where memory ran out."""
        return replace(self.record.planner, batch_tokens=self.batch_tokens[1])

    @property
    def batch_tokens(self) -> tuple[int, int]:
        """How many tokens run together: what the run began with, and now."""
        first = self.recipe.batch_tokens or self.record.planner.batch_tokens
        return first, min(first, self.folder.notes.get("batch_tokens") or first)

    def writer(self) -> Writer:
        """The tokenizer and the template of the questions."""
        executor = self.executor if self.in_memory else None
        model: Any = (
            executor.worker.lm if isinstance(executor, LocalExecutor) else self._facts
        )
        return Writer(
            model.tokenizer,
            make_template(self.recipe.prompt, model.tokenizer, model.needs_bos),
        )

    # What steps depend on, beside options of the recipe.

    @property
    def positions(self) -> tuple[str, ...]:
        """Where probes read: at the final token always, and at the headline position."""
        return tuple(dict.fromkeys(("final", self.recipe.position)))

    @property
    def places(self) -> list[Place]:
        """Every (position, site), as indices."""
        return [
            (position, site)
            for position in range(len(self.positions))
            for site in range(len(SITES))
        ]

    @property
    def headline(self) -> Place:
        """That of the chart."""
        return self.positions.index(self.recipe.position), SITES.index(self.recipe.site)

    @property
    def is_shape(self) -> bool:
        return is_shape(self.recipe.model)

    @property
    def model_name(self) -> str:
        """It is in the tables, and the model's key does not depend on it."""
        return self.record.identity.name

    @property
    def fit_device(self) -> str:
        """Where this process fits probes and resamples tables: on its CPU, where only workers have a GPU."""
        device = "cuda" if self.recipe.device == BALANCED else self.recipe.device
        is_here = torch.cuda.is_available() or not device.startswith("cuda")
        return device if is_here else "cpu"

    def made_from(
        self, epoch: int, libraries: Sequence[str], options: Sequence[str]
    ) -> dict[str, Any]:
        """What a step is made from: its code's epoch, libraries, and options, of the recipe or of this run."""
        values = {
            name: getattr(self.recipe if name in Recipe.model_fields else self, name)
            for name in options
        }
        return {
            "epoch": epoch,
            "options": values,
            "libraries": {name: self._version_of(name) for name in libraries},
        }


class DatasetRun:
    """One dataset of a run; `run["probes"]` is the result of that step: in memory, read from the folder, or made."""

    def __init__(self, job: Job, spec: DatasetSpec, table: Sequence[Step]) -> None:
        self.job, self.spec, self.name = job, spec, spec.name
        self.steps = {step.name: step for step in table}
        self.source = self._question_source()
        self._results: dict[str, StepResult] = {}
        self.passes: dict[str, Any] = {}
        """What the last pass gave, by its name: the steps that take parts of it follow one another."""

    def _question_source(self) -> Source:
        """What the questions depend on: the content of their file, as it is now."""
        name, spec, folder = f"question file of {self.name}", self.spec, self.job.folder
        if spec.path is None:
            return Source(
                name,
                canonical_hash(repr(BUILT_IN[spec.name]()))
                if spec.name in BUILT_IN
                else spec.name,
            )
        try:
            return Source(name, hash_of(spec.path))
        except UserError:
            record = folder.steps.get(f"{spec.name}/questions")
            if record is None:
                return Source(name, "missing")  # reading it says what is wrong
            folder.tell(
                f"{spec.path} cannot be read any more; the questions that were read from it are used"
            )
            return Source(name, record.made_from["parents"][name])

    # Results of steps.

    def __getitem__(self, name: str) -> Any:
        return self.result(name).value

    def result(self, name: str) -> StepResult:
        """A step's key, and its value once it is asked for."""
        if name not in self._results:
            job, step = self.job, self.steps[name]
            inputs = {FILE: lambda: self.source, MODEL: lambda: job.model}
            needs = [
                inputs[need]() if need in inputs else self.result(need)
                for need in step.needs
            ]
            details = job.made_from(step.epoch, step.libraries, step.options) | {
                "large": step.large
            }
            # workers' states are in files already
            details["stored"] = job.executor.is_local or not step.large
            made = format_for(step.make), partial(step.make, self)
            self._results[name] = StepResult(
                job.folder, f"{self.name}/{name}", needs, *made, **details
            )
        return self._results[name]

    def made(self, name: str) -> Any:
        """The result of a step that only some recipes have; empty without it."""
        return self[name] if name in self.steps else {}

    def forget_values(self) -> None:
        """Frees the memory of all results; they can still be read from the folder."""
        self._results.clear()
        self.passes.clear()
        if not self.job.recipe.keep:  # what is kept is written with the results
            self.job.executor.forget_states()

    def is_kept(self, name: str) -> bool:
        """Whether the folder holds a step's result."""
        return (
            f"{self.name}/{name}" in self.job.folder.steps and self.result(name).is_kept
        )

    @property
    def goals(self) -> set[str]:
        """Steps whose results the run's files hold: large ones only where they are kept, others all, or those that
        detectors read."""
        keep = self.job.recipe.keep
        read_by_detectors = {
            "log-probs",
            "attention-mass",  # of the same pass: a later run then needs none of its own
            "detection-columns",
            *[f"effects-{KNOCKOUT}"] * ("states-cut" in keep),
        }
        small = {name for name, step in self.steps.items() if not step.large}
        large = {step for name in keep for step in _KEPT_STEPS[name]}
        return large | (small & read_by_detectors if self.job.for_detectors else small)

    def missing(self) -> list[Step]:
        """The steps that the run's results need and the folder lacks, in order."""
        missing: list[Step] = []
        wanted = self.goals
        for step in reversed(self.steps.values()):
            if step.name in wanted and not self.is_kept(step.name):
                wanted |= set(step.needs)
                missing.insert(0, step)
        return missing

    def steps_to_make(self) -> list[Step]:
        """Those of them that are made in turn; other large ones are made, or read from kept states, where a step asks
        for them. What cannot be done is refused before anything slow."""
        missing = self.missing()
        if any(step.name == "probes" for step in missing):
            self.splits  # noqa: B018 - too few groups
        if any(step.large for step in missing):
            self.check_room()
        wanted = self.goals | {
            need for step in missing if not step.large for need in step.needs
        }
        return [step for step in missing if not step.large or step.name in wanted]

    @property
    def key(self) -> str:
        """The key of all that this dataset contributes to the results."""
        small = [
            name
            for name in self.steps
            if name in self.goals and not self.steps[name].large
        ]
        return canonical_hash([self.result(name).key for name in small])

    # Items.

    @property
    def asked(self) -> QuestionSample:
        """The questions; not stored yet where they are new, as a refused run leaves nothing."""
        return self["questions"] if self.is_kept("questions") else self.read_questions

    @cached_property
    def read_questions(self) -> QuestionSample:
        """The questions, read from their file."""
        return ask(
            self.job.recipe,
            self.spec,
            None if self.spec.path is None else self.source.key,
        )

    @property
    def sample(self) -> QuestionSample:
        """The questions as they are answered, with the model's thinking where that is asked for."""
        return self["thinking" if self.job.recipe.thinking else "questions"]

    @cached_property
    def items(self) -> list[Item]:
        """All questions that were asked, with answer, label and tokens."""
        rows = zip(
            self.sample.questions,
            self["answers"],
            self["labels"],
            self["tokens"],
            strict=True,
        )
        return [Item(*row) for row in rows]

    @cached_property
    def used(self) -> NDArray[np.int64]:
        """Which of them are used; all arrays below run over these."""
        return np.flatnonzero([item.is_used for item in self.items])

    @cached_property
    def used_items(self) -> list[Item]:
        return [self.items[index] for index in self.used]

    @cached_property
    def item_ids(self) -> list[str]:
        return [item.item_id for item in self.used_items]

    @cached_property
    def items_with_log_probs(self) -> list[Item]:
        """All items; supplied answers of the used ones have the log-probabilities of the clean pass."""
        items = list(self.items)
        answers = with_log_probs(
            [item.answer for item in self.used_items], self["log-probs"]
        )
        for index, answer in zip(self.used, answers, strict=True):
            items[index] = replace(items[index], answer=answer)
        return items

    @cached_property
    def groups(self) -> NDArray[np.int64]:
        """The group of every used item."""
        return np.array([item.label.group for item in self.used_items], dtype=np.int64)

    @cached_property
    def relations(self) -> list[str | None]:
        return [item.question.relation for item in self.used_items]

    @cached_property
    def splits(self) -> Splits:
        """Folds and inner folds of the used items."""
        recipe, ids = self.job.recipe, self.item_ids
        truth = np.array([item.label.truthful for item in self.used_items], dtype=bool)
        order = priorities(recipe.seed, "folds", ids)
        folds = grouped_folds(
            self.groups, truth_strata(truth, self.relations), recipe.folds, order
        )
        try:
            return make_splits(
                truth,
                self.groups,
                folds,
                recipe.seed,
                item_ids=ids,
                relations=self.relations,
            )
        except TooFewAnswers as error:
            raise TooFewAnswers(f"Dataset {self.name!r}: {error}") from None

    @cached_property
    def evidence_items(self) -> EvidenceItems:
        """The used items, for the parts of the evidence."""
        return EvidenceItems(
            self.splits.labels,
            self.groups,
            self.relations,
            self.item_ids,
            self.job.recipe.seed,
        )

    @cached_property
    def weights(self) -> NDArray[np.float32]:
        """Bootstrap weights over groups, [resample, item]."""
        recipe = self.job.recipe
        return group_weights(
            self.groups, recipe.bootstrap, stream(recipe.seed, "bootstrap", self.name)
        )

    # Probes and cuts.

    @property
    def probe_names(self) -> list[str]:
        """Every site and position, as probes are named."""
        return [
            f"{SITES[site]}/{self.job.positions[position]}"
            for position, site in self.job.places
        ]

    @property
    def headline_index(self) -> int:
        """The headline's number among all places."""
        return self.job.places.index(self.job.headline)

    @property
    def headline_probes(self) -> Any:
        """The `ProbeSet` at the headline site and position."""
        return self["probes"][self.probe_names[self.headline_index]]

    @cached_property
    def scoring(self) -> Scoring:
        """The probes in the order of positions and sites."""
        sets = [self["probes"][name] for name in self.probe_names]
        by_position = [
            tuple(sets[at : at + len(SITES)]) for at in range(0, len(sets), len(SITES))
        ]
        return Scoring(tuple(by_position), self.splits.folds)

    @cached_property
    def setting(self) -> Setting:
        """What interventions are given beside the items."""
        job, recipe = self.job, self.job.recipe
        return Setting(
            job.positions,
            recipe.edges,
            recipe.seed,
            job.writer,
            recipe.evidence_items,
            job.planner.context,
            lambda: dict(zip(self.item_ids, self["attention-mass"], strict=True)),
        )

    @property
    def headline_passes(self) -> ItemPasses:
        """Further passes over the used items, which read the headline's states."""
        job, inputs = (
            self.job,
            (self.used_items, self.setting, self.job.headline, self.job.progress),
        )
        return ItemPasses(job.executor, job.planner, *inputs, self.is_compiled)

    def interventions(self, experiment: str) -> list[Intervention]:
        """The interventions of an experiment, every draw of a random one."""
        return with_draws(
            of_experiments([experiment]), self.job.recipe.random_cuts or 1
        )

    @property
    def keeping_states(self) -> list[str]:
        """The interventions whose states are kept; of a random one those of the first draw."""
        return [
            each.name
            for each in self.interventions("knockout")
            if each.keeps_states and each.draw == 0
        ]

    @property
    def is_compiled(self) -> bool:
        """Whether enough is run that compiling the model pays, with as many random cuts as a GPU makes by default.

        Nothing beside the items and what is in the model's key may decide it: compiled and plain blocks differ in
        their last digits, and states of all cuts are compared with the same clean ones.
        """
        compile_from = self.job.planner.compile_from
        if compile_from is None:
            return False
        own = sum(
            len(item.located.input_ids) - item.located.prefix_length
            for item in self.used_items
        )
        cuts = with_draws(of_experiments([KNOCKOUT]), MOST_RANDOM_CUTS)
        return own * (1 + len(cuts)) >= compile_from

    @cached_property
    def headline_band(self) -> list[int]:
        """Layers whose inner folds' AUC is within one standard error of the best; no share plays a part in it."""
        inner = self.headline_probes.inner_auc.mean(axis=0)
        position, site = self.job.headline
        best = self["clean-scores"][:, position, site, int(inner.argmax())]
        resampled = areas(
            best[None], self.splits.labels, self.splits.folds, Draws.of(self.weights)
        )[0, 1:]
        return layer_band(inner, float(np.nanstd(resampled.cpu().numpy())))

    def directions_of(self, n_items: int) -> int:
        """Principal directions that a view of some items is reduced to."""
        width = self.job.record.identity.d_model
        return min(
            self.job.recipe.directions or default_directions(n_items, width),
            n_items - 1,
            width,
        )

    @property
    def effects(self) -> list[Effect]:
        """What every experiment's interventions did."""
        return [
            effect
            for name in self.steps
            if name.startswith("effects-")
            for effect in self[name].effects
        ]

    def measured_at_places(
        self, effects: Sequence[Effect]
    ) -> dict[tuple[str, str], Measured]:
        """Log-odds before and after interventions, per (site, position)."""
        fitted, scores = self["probes"], self["clean-scores"]
        return measured_places(
            self.splits, self.groups, self.job.positions, fitted, scores, effects
        )

    @cached_property
    def measured(self) -> dict[tuple[str, str], Measured]:
        """Those of all interventions."""
        return self.measured_at_places(self.effects)

    # Kept states.

    def kept_states(self, step: str, interventions: Sequence[str]) -> dict[str, Tensor]:
        """States of a step that an earlier run in this folder kept; nothing unless all of them are there and whole."""
        key, n_layers = self.result(step).key, self.job.record.identity.n_layers
        return read_kept(self.job.folder, self.name, interventions, key, n_layers)

    def check_room(self) -> None:
        """Refuses a disk that is too small for the states that are kept, and says how much they will take."""
        job, keep, identity, n_items = (
            self.job,
            self.job.recipe.keep,
            self.job.record.identity,
            len(self.used_items),
        )
        n_runs = len(self.keeping_states) * ("states-cut" in keep) + len(
            DETECTION_RUNS
        ) * ("detection" in keep)
        n_places = (len(job.places) + 1) * ("states" in keep) + n_runs
        size = (
            n_places
            * identity.n_layers
            * n_items
            * identity.d_model
            * getattr(torch, identity.dtype).itemsize
        )
        refuse_full_disk(job.folder.path, size)
        if size:
            states = f"{', '.join(keep)} of {n_items} items"
            job.progress.note(
                f"{self.name}: {states} take {size / 1e6:,.1f} MB in the run folder"
            )
