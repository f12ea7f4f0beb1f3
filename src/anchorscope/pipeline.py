"""The main job, from questions to the chart, told from top to bottom.

questions → answers → truth labels → exact tokens → clean states → probes → interventions → pathways and curves → report

Every step is one call into one room, and its result is kept by the run folder: a run that is stopped goes on at the
first step that is not there yet.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.answers.choose import Asked
from anchorscope.answers.conversation import Conversation
from anchorscope.answers.generate import Answer
from anchorscope.answers.label import Label, label_answers, require_enough
from anchorscope.checkpoints import ARRAY, EFFECTS, FRAMES, PROBE_SETS, TENSOR, records
from anchorscope.datasets.catalog import DatasetSpec, parse_spec
from anchorscope.datasets.question import Question
from anchorscope.engine.batching import Budget
from anchorscope.engine.budget import automatic_tokens, worth_compiling
from anchorscope.engine.capture import clean_states
from anchorscope.engine.sequences import SITES
from anchorscope.errors import TooFewAnswers
from anchorscope.evidence.effects import Effect, measure, refuse_no_ops, score_states
from anchorscope.evidence.gather import measured_places, refit_logits
from anchorscope.evidence.items import Measured
from anchorscope.evidence.tables import Evidence, evidence_tables
from anchorscope.interventions.intervention import Intervention, ItemTokens, item_tokens
from anchorscope.interventions.registry import available, chosen
from anchorscope.models.language_model import LanguageModel, ModelIdentity
from anchorscope.models.loading import load as load_model
from anchorscope.models.wrapping import wrap
from anchorscope.prepare import ask, few_collections, refuse_other_weights, rehearse, resolve, solver_device
from anchorscope.probes.crossfit import MIN_PER_CLASS, PROBES, ProbeSet, Splits, fit_probes, make_splits
from anchorscope.probes.folds import grouped_folds
from anchorscope.probes.scoring import Scorer
from anchorscope.progress import Progress, Silent
from anchorscope.publish import DatasetResult, LeftOut, publish
from anchorscope.recipe import Recipe
from anchorscope.results import confidence, counts_frame, effects_frame, items_frame, probe_tensors, unused_frames
from anchorscope.spans.locate import Located, locate_all
from anchorscope.spans.question_spans import QuestionSpans
from anchorscope.spans.question_words import question_words
from anchorscope.stats.bootstrap import group_weights
from anchorscope.store import RunFolder, open_run

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
    if fresh:
        rehearse(recipe, loaded is not None)
    with open_run(out, recipe, fresh) as folder, few_collections():
        if not folder.finished:
            job = _Job(folder, recipe, loaded, progress or Silent())
            asked = [job.ask(parse_spec(text)) for text in recipe.datasets]  # all files are read before anything slow
            identity = job.identity  # a resumed run must go on with the same weights
            results, left_out = job.datasets(asked)
            tokens = (folder.remembered("first_batch_tokens") or 0, job.budget.tokens)
            publish(folder, identity, results, left_out, tokens, job.progress)
    return out


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
            self.progress.start("load model", 1)
            lm = load_model(recipe.model, recipe.dtype, recipe.device, recipe.trust_remote_code)
            self.progress.advance(1)
            self.progress.finish()
        refuse_other_weights(recipe, lm, self.folder.stored("model.json", _IDENTITY))
        return lm

    @cached_property
    def identity(self) -> ModelIdentity:
        """Which model this is, once and for all."""
        return self.folder.step("model.json", lambda: self.lm.identity(), _IDENTITY)

    @cached_property
    def budget(self) -> Budget:
        """How many tokens run together: found once, and lowered where memory ran out; a resumed run goes on with it."""
        remember, remembered = self.folder.remember, self.folder.remembered
        if remembered("first_batch_tokens") is None:
            remember("first_batch_tokens", self.recipe.batch_tokens or automatic_tokens(self.lm))
        fits = remembered("batch_tokens") or remembered("first_batch_tokens") or 1
        return Budget(fits, lambda tokens: remember("batch_tokens", tokens))

    @property
    def positions(self) -> tuple[str, ...]:
        """Where probes read: at the final token always, and at the headline position."""
        return tuple(dict.fromkeys(("final", self.recipe.position)))

    def ask(self, spec: DatasetSpec) -> tuple[str, Asked]:
        """The questions of one dataset."""
        made = self.folder.step(f"{spec.name}/questions.json", lambda: ask(self.recipe, spec), records(Asked))
        return spec.name, made

    def datasets(self, asked: Sequence[tuple[str, Asked]]) -> tuple[list[DatasetResult], list[LeftOut]]:
        """Every dataset in turn; one with too few answers of either kind does not keep the others from their chart."""
        results, left_out, told = [], [], []
        for name, questions in asked:
            try:
                results.append(self.dataset(name, questions))
            except TooFewAnswers as error:
                answers = self.folder.stored(f"{name}/answers.json", records(list[Answer]))
                labels = self.folder.stored(f"{name}/labels.json", records(list[Label]))
                left_out.append(LeftOut(name, str(error), *unused_frames(name, questions, answers, labels)))
                told.append(error)
        if not results:
            raise told[0]
        return results, left_out

    def dataset(self, name: str, asked: Asked) -> DatasetResult:
        """The whole job on one dataset, from its questions to its tables."""
        recipe, step = self.recipe, self.folder.step
        talk = Conversation(lambda: self.lm, asked.questions, self.budget, recipe.prompt)
        answers: list[Answer] = step(
            f"{name}/answers.json", lambda: talk.answer(recipe.max_new_tokens, self.progress), records(list[Answer])
        )
        labels: list[Label] = step(
            f"{name}/labels.json",
            lambda: label_answers(
                asked.questions, answers, recipe.balance, recipe.group_by, recipe.max_per_class, recipe.seed
            ),
            records(list[Label]),
        )
        require_enough(name, labels, MIN_PER_CLASS, recipe.balance)
        located: list[Located | None] = step(
            f"{name}/tokens.json", lambda: self._locate(asked.questions, talk, answers), records(list[Located | None])
        )
        used = [index for index, label in enumerate(labels) if label.status == "used"]
        places = [place for index in used if (place := located[index]) is not None]
        splits, groups = self._split([labels[index] for index in used])

        @cache
        def tokens() -> list[ItemTokens]:
            return [item_tokens(place, self.positions, talk.prefix.length) for place in places]

        wanted, missing = available(chosen(recipe.evidence), [place.parts for place in places], 2 * MIN_PER_CLASS)

        @cache
        def compiled() -> bool:
            own = sum(len(one.sequence.ids) - talk.prefix.length for one in tokens())
            return worth_compiling(self.lm, own * (1 + len(wanted)))

        states: Tensor = step(
            f"{name}/states.safetensors", lambda: self._clean_states(tokens(), talk, compiled()), TENSOR
        )
        probe_sets: dict[str, ProbeSet] = step(
            f"{name}/probes.safetensors", lambda: self._fit(states, splits), PROBE_SETS
        )

        @cache
        def scorer() -> Scorer:
            in_order = [[probe_sets[f"{site}/{position}"] for site in SITES] for position in self.positions]
            return Scorer(in_order, splits.folds, self.lm.device)

        clean: NDArray[np.float32] = step(f"{name}/clean.safetensors", lambda: score_states(scorer(), states), ARRAY)

        effects: list[Effect] = step(
            f"{name}/effects", lambda: self._measure(wanted, tokens(), talk, scorer(), compiled()), EFFECTS
        )
        refuse_no_ops(effects, clean)

        answered = [_Answered(asked.questions[index], answers[index]) for index in used]
        measured = measured_places(splits, groups, self.positions, probe_sets, clean, effects)
        tables: dict[str, pl.DataFrame] = step(
            f"{name}/evidence", lambda: self._evidence(name, answered, splits, groups, measured, effects), FRAMES
        )
        fold_of = dict(zip(used, splits.folds.tolist(), strict=True))
        item_ids = [one.question.item_id for one in answered]
        headline = (recipe.site, recipe.position)
        return DatasetResult(
            name=name,
            items=items_frame(asked.questions, answers, labels, located, fold_of, tables["pathways"], headline),
            effects=effects_frame(name, item_ids, PROBES, self.positions, clean, effects),
            counts=counts_frame(name, asked, labels, located),
            tables=tables,
            probes=probe_tensors(name, PROBES, probe_sets),
            reference_layers=tuple(probe_sets["/".join(headline)].reference[0].tolist()),
            unconverged=tuple(one for fitted in probe_sets.values() for one in fitted.unconverged),
            missing=tuple(missing),
        )

    def _locate(
        self, questions: Sequence[Question], talk: Conversation, answers: Sequence[Answer]
    ) -> list[Located | None]:
        """The exact tokens of every answered question."""
        chooser = self.recipe.exact_tokens
        words: list[QuestionSpans] = question_words(chooser, questions, lambda: self.lm, self.budget, self.progress)
        return locate_all(self.lm.tokenizer, questions, words, talk.prompts, answers)

    def _split(self, used: Sequence[Label]) -> tuple[Splits, NDArray[np.int64]]:
        """Folds, halves and inner folds of the used items, and their groups."""
        truth = np.array([label.truthful for label in used], dtype=bool)
        groups = np.array([label.group for label in used], dtype=np.int64)
        rng = np.random.default_rng([self.recipe.seed, 4])
        folds = grouped_folds(groups, truth, self.recipe.folds, rng)
        return make_splits(truth, groups, folds, self.recipe.seed), groups

    def _clean_states(self, tokens: Sequence[ItemTokens], talk: Conversation, compiled: bool) -> Tensor:
        sequences = [one.sequence for one in tokens]
        return clean_states(self.lm, sequences, talk.prefix, self.budget, self.progress, compiled)

    def _fit(self, states: Tensor, splits: Splits) -> dict[str, ProbeSet]:
        names = [f"{site}/{position}" for position in self.positions for site in SITES]
        fitted = fit_probes(states.flatten(0, 1), splits, names, self.lm.device, self.progress)
        return dict(zip(names, fitted, strict=True))

    def _measure(
        self, wanted: Sequence[Intervention], tokens: Sequence[ItemTokens], talk: Conversation, scorer: Scorer,
        compiled: bool,
    ) -> list[Effect]:  # fmt: skip
        recipe = self.recipe
        return measure(
            self.lm,
            tokens,
            talk.prefix,
            scorer,
            wanted,
            edges=recipe.edges,
            headline=(self.positions.index(recipe.position), SITES.index(recipe.site)),
            budget=self.budget,
            seed=recipe.seed,
            progress=self.progress,
            compiled=compiled,
        )

    def _evidence(
        self, name: str, answered: Sequence["_Answered"], splits: Splits, groups: NDArray[np.int64],
        places: dict[tuple[str, str], Measured], effects: Sequence[Effect],
    ) -> dict[str, pl.DataFrame]:  # fmt: skip
        recipe = self.recipe
        sure = [confidence(one.answer) for one in answered]
        refits = {
            one.intervention: refit_logits(one, splits, self.progress, solver_device(recipe.device))
            for one in effects
            if one.states is not None
        }
        evidence = Evidence(
            model=self.identity.name,
            dataset=name,
            item_ids=[one.question.item_id for one in answered],
            questions=[one.question.question for one in answered],
            answers=[one.answer.text for one in answered],
            relations=[one.question.relation for one in answered],
            confidence_mean=[mean for mean, _ in sure],
            confidence_min=[least for _, least in sure],
            variant=recipe.edges,
            places=places,
            refits=refits,
            headline=(recipe.site, recipe.position),
            weights=group_weights(groups, recipe.bootstrap, np.random.default_rng([recipe.seed, 3])),
        )
        return evidence_tables(evidence, self.progress, solver_device(recipe.device))


class _Answered(NamedTuple):
    """A used item's question and answer."""

    question: Question
    answer: Answer
