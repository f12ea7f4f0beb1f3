"""The main job, from questions to the chart, told from top to bottom.

questions → answers → truth labels → exact tokens → clean states → probes → interventions → pathways and curves → report

Every step is one call into one room, and its result is kept by the run folder: a run that is stopped goes on at the
first step that is not there yet.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.answers.choose import Asked, choose_questions
from anchorscope.answers.generate import Answer, answer_questions
from anchorscope.answers.label import Label, label_answers, require_enough
from anchorscope.answers.prompt import Prompt, build_prompts, prefix_length
from anchorscope.checkpoints import EFFECT, FRAMES, PROBE_SETS, TENSOR, records
from anchorscope.datasets.catalog import DatasetSpec, load, parse_spec
from anchorscope.engine.capture import clean_states
from anchorscope.engine.forward import compute_prefix
from anchorscope.engine.keys_values import Prefix
from anchorscope.engine.sequences import SITES, TokenSequence
from anchorscope.errors import UserError
from anchorscope.evidence.effects import Effect, measure, refuse_no_op, score_states
from anchorscope.evidence.gather import measured_places, refit_logits
from anchorscope.evidence.tables import Evidence, evidence_tables
from anchorscope.interventions.intervention import Intervention, ItemTokens
from anchorscope.interventions.registry import INTERVENTIONS
from anchorscope.models.language_model import LanguageModel, ModelIdentity, wrap
from anchorscope.models.loading import choose_device, choose_dtype
from anchorscope.models.loading import load as load_model
from anchorscope.probes.crossfit import MIN_PER_CLASS, PROBES, ProbeSet, Splits, fit_probes, make_splits
from anchorscope.probes.folds import grouped_folds
from anchorscope.probes.scoring import Scorer
from anchorscope.progress import Progress, Silent
from anchorscope.publish import DatasetResult, publish
from anchorscope.recipe import Recipe
from anchorscope.results import confidence, counts_frame, effects_frame, items_frame, probe_tensors
from anchorscope.spans.locate import Located, locate
from anchorscope.spans.positions import POSITIONS
from anchorscope.stats.bootstrap import group_weights
from anchorscope.store import RunFolder, open_run

_BATCH_TOKENS = {"cpu": 2048}  # of the embedded model's size; matrix products gain little beyond it
_BATCH_TOKENS_GPU = 16384
_IDENTITY = records(ModelIdentity)


def run_recipe(
    recipe: Recipe,
    out: Path,
    *,
    loaded: tuple[Any, Any] | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Runs a recipe into a folder, or goes on with it; `loaded` is a (model, tokenizer) that is already in memory."""
    recipe = resolve(recipe)
    with open_run(out, recipe, fresh) as folder:
        if not folder.finished:
            job = _Job(folder, recipe, loaded, progress or Silent())
            identity = job.identity  # before anything is asked: a resumed run must go on with the same weights
            results = [job.dataset(parse_spec(text)) for text in recipe.datasets]
            publish(folder, identity, results)
    return out


def resolve(recipe: Recipe) -> Recipe:
    """The recipe with every choice that depends on the machine made."""
    device = choose_device(recipe.device)
    batch_tokens = recipe.batch_tokens or _BATCH_TOKENS.get(device.split(":")[0], _BATCH_TOKENS_GPU)
    settled = {"device": device, "dtype": choose_dtype(recipe.dtype, device), "batch_tokens": batch_tokens}
    return recipe.model_copy(update=settled)


@dataclass
class _Job:
    """One run under way."""

    folder: RunFolder
    recipe: Recipe
    loaded: tuple[Any, Any] | None
    progress: Progress

    @cached_property
    def lm(self) -> LanguageModel:
        """The model, loaded when the first step needs it."""
        recipe = self.recipe
        if self.loaded is not None:
            lm = wrap(*self.loaded)
        else:
            lm = load_model(recipe.model, recipe.dtype, recipe.device, recipe.trust_remote_code)
        known = self.folder.stored("model.json", _IDENTITY)
        if known is not None and known.fingerprint != lm.fingerprint():
            raise UserError(
                f"The weights of {recipe.model!r} are not those that this run began with ({known.name}); "
                f"start over with --fresh, or choose another folder with --out."
            )
        return lm

    @cached_property
    def identity(self) -> ModelIdentity:
        """Which model this is, once and for all."""
        return self.folder.step("model.json", lambda: self.lm.identity(), _IDENTITY)

    @property
    def positions(self) -> tuple[str, ...]:
        """Where probes read: at the final token always, and at the headline position."""
        return tuple(dict.fromkeys(("final", self.recipe.position)))

    def dataset(self, spec: DatasetSpec) -> DatasetResult:
        """The whole job on one dataset."""
        recipe, step, name = self.recipe, self.folder.step, spec.name
        asked: Asked = step(
            f"{name}/questions.json",
            lambda: choose_questions(load(spec, recipe.on_bad_row), recipe.limit, recipe.seed),
            records(Asked),
        )
        talk = _Talk(self, asked)
        answers: list[Answer] = step(f"{name}/answers.json", talk.answer, records(list[Answer]))
        labels: list[Label] = step(
            f"{name}/labels.json",
            lambda: label_answers(
                asked.questions, answers, recipe.balance, recipe.group_by, recipe.max_per_class, recipe.seed
            ),
            records(list[Label]),
        )
        require_enough(name, labels, MIN_PER_CLASS, recipe.balance)
        located: list[Located | None] = step(
            f"{name}/tokens.json", lambda: talk.locate(answers), records(list[Located | None])
        )
        used = _Used.of(labels, recipe)
        tokens = [talk.item_tokens(located[index], self.positions) for index in used.items]

        states: Tensor = step(
            f"{name}/states.safetensors",
            lambda: clean_states(self.lm, [item.sequence for item in tokens], talk.prefix, talk.batch, self.progress),
            TENSOR,
        )
        probe_sets: dict[str, ProbeSet] = step(
            f"{name}/probes.safetensors", lambda: self._fit(states, used.splits), PROBE_SETS
        )
        scorer = Scorer(
            [[probe_sets[f"{site}/{position}"] for site in SITES] for position in self.positions],
            used.splits.folds,
            self.lm.device,
        )
        clean = score_states(scorer, states)
        effects = [self._measure(name, one, tokens, talk, scorer, clean) for one in INTERVENTIONS.values()]

        item_ids = [asked.questions[index].item_id for index in used.items]
        tables: dict[str, pl.DataFrame] = step(
            f"{name}/evidence",
            lambda: self._evidence(spec, asked, answers, used, probe_sets, clean, effects),
            FRAMES,
        )
        folds = dict(zip(used.items, used.splits.folds.tolist(), strict=True))
        headline = (recipe.site, recipe.position)
        return DatasetResult(
            name=name,
            items=items_frame(asked.questions, answers, labels, located, folds, tables["pathways"], headline),
            effects=effects_frame(name, item_ids, PROBES, self.positions, clean, effects),
            counts=counts_frame(name, asked, labels),
            tables=tables,
            probes={
                key: tensor
                for place, fitted in probe_sets.items()
                for key, tensor in probe_tensors(name, place, PROBES, fitted).items()
            },
            reference_layers=tuple(probe_sets["/".join(headline)].reference[0].tolist()),
            unconverged=tuple(one for fitted in probe_sets.values() for one in fitted.unconverged),
        )

    def _fit(self, states: Tensor, splits: Splits) -> dict[str, ProbeSet]:
        return {
            f"{site}/{position}": fit_probes(
                states[q, s].to(self.lm.device), splits, f"{site}/{position}", self.progress
            )
            for q, position in enumerate(self.positions)
            for s, site in enumerate(SITES)
        }

    def _measure(
        self, name: str, intervention: Intervention, tokens: Sequence[ItemTokens], talk: "_Talk", scorer: Scorer,
        clean: NDArray[np.float32],
    ) -> Effect:  # fmt: skip
        recipe = self.recipe
        headline = (self.positions.index(recipe.position), SITES.index(recipe.site))
        effect: Effect = self.folder.step(
            f"{name}/{intervention.name}.safetensors",
            lambda: measure(
                self.lm, tokens, talk.prefix, scorer, intervention, recipe.edges, headline, talk.batch, recipe.seed,
                self.progress,
            ),
            EFFECT,
        )  # fmt: skip
        refuse_no_op(effect, clean)
        return effect

    def _evidence(
        self, spec: DatasetSpec, asked: Asked, answers: Sequence[Answer], used: "_Used",
        probe_sets: dict[str, ProbeSet], clean: NDArray[np.float32], effects: Sequence[Effect],
    ) -> dict[str, pl.DataFrame]:  # fmt: skip
        recipe = self.recipe
        questions = [asked.questions[index] for index in used.items]
        said = [answers[index] for index in used.items]
        sure = [confidence(answer) for answer in said]
        weights = group_weights(used.groups, recipe.bootstrap, np.random.default_rng([recipe.seed, 3]))
        evidence = Evidence(
            model=self.identity.name,
            dataset=spec.name,
            item_ids=[question.item_id for question in questions],
            questions=[question.question for question in questions],
            answers=[answer.text for answer in said],
            relations=[question.relation for question in questions],
            confidence_mean=[mean for mean, _ in sure],
            confidence_min=[least for _, least in sure],
            variant=recipe.edges,
            places=measured_places(used.splits, used.groups, self.positions, probe_sets, clean, effects),
            refits={
                one.intervention: refit_logits(one, used.splits, self.progress)
                for one in effects
                if one.states is not None
            },
            headline=(recipe.site, recipe.position),
            weights=weights,
        )
        return evidence_tables(evidence, self.progress)


@dataclass
class _Talk:
    """Prompts and shared prefix of one dataset; made when a step needs them."""

    job: _Job
    asked: Asked

    @property
    def batch(self) -> int:
        """Tokens run together."""
        assert self.job.recipe.batch_tokens is not None  # resolved before the first step
        return self.job.recipe.batch_tokens

    @cached_property
    def prompts(self) -> list[Prompt]:
        return build_prompts(self.job.lm.tokenizer, self.asked.questions)

    @cached_property
    def prefix(self) -> Prefix:
        shared = self.prompts[0].ids[: prefix_length(self.prompts)]
        return compute_prefix(self.job.lm, shared)

    def answer(self) -> list[Answer]:
        recipe = self.job.recipe
        return answer_questions(
            self.job.lm, self.asked.questions, self.prompts, self.prefix, self.batch, recipe.max_new_tokens,
            self.job.progress,
        )  # fmt: skip

    def locate(self, answers: Sequence[Answer]) -> list[Located | None]:
        """Exact tokens of every item that was answered."""
        return [
            locate(self.job.lm.tokenizer, question, prompt, answer) if answer.status == "answered" else None
            for question, prompt, answer in zip(self.asked.questions, self.prompts, answers, strict=True)
        ]

    def item_tokens(self, located: Located | None, positions: Sequence[str]) -> ItemTokens:
        assert located is not None  # used items are answered
        read_at = tuple(located.positions[POSITIONS.index(position)] for position in positions)
        sequence = TokenSequence(located.input_ids, located.answer_start, read_at)
        return ItemTokens(sequence, located.question_tokens, self.prefix.length)


@dataclass(frozen=True)
class _Used:
    """The items that probes are trained on, with their splits."""

    items: list[int]
    groups: NDArray[np.int64]
    splits: Splits

    @classmethod
    def of(cls, labels: Sequence[Label], recipe: Recipe) -> "_Used":
        items = [index for index, label in enumerate(labels) if label.status == "used"]
        truth = np.array([labels[index].truthful for index in items], dtype=bool)
        groups = np.array([labels[index].group for index in items], dtype=np.int64)
        folds = grouped_folds(groups, truth, recipe.folds, np.random.default_rng([recipe.seed, 4]))
        return cls(items, groups, make_splits(truth, groups, folds, recipe.seed))
