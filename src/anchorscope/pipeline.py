"""The main job, from questions to the chart, told from top to bottom.

questions → answers → truth labels → exact tokens → clean states → probes → interventions → pathways and curves
→ further experiments → report

Every step is one call into one room, and its result is kept by the run folder: a run that is stopped goes on at the
first step that is not there yet.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.answers.choose import Asked as Chosen
from anchorscope.answers.conversation import Conversation
from anchorscope.answers.generate import Answer
from anchorscope.answers.label import Label, label_answers, require_enough
from anchorscope.assemble import Material, evidence_of, ground_of, spoken_items
from anchorscope.checkpoints import ARRAY, ARRAYS, FOUND, FRAMES, MEASUREMENTS, PROBE_SETS, TENSOR, records
from anchorscope.datasets.catalog import DatasetSpec, parse_spec
from anchorscope.engine.budget import worth_compiling
from anchorscope.engine.capture import clean_states
from anchorscope.engine.sequences import SITES
from anchorscope.errors import TooFewAnswers
from anchorscope.evidence.effects import refuse_no_ops, score_states
from anchorscope.evidence.experiments.experiment import Experiment, Found
from anchorscope.evidence.experiments.ground import Asked, Ground
from anchorscope.evidence.experiments.registry import chosen_experiments
from anchorscope.evidence.gather import measured_places, refit_logits
from anchorscope.evidence.measuring import Measurements, Missing, Plan, measure_all
from anchorscope.evidence.tables import evidence_tables
from anchorscope.interventions.intervention import ItemTokens, item_tokens
from anchorscope.interventions.registry import chosen
from anchorscope.interventions.rewriting import Writer
from anchorscope.job import Job
from anchorscope.prepare import ask, few_collections, rehearse, resolve
from anchorscope.probes.crossfit import MIN_PER_CLASS, PROBES, ProbeSet, Splits, fit_probes, make_splits
from anchorscope.probes.folds import grouped_folds
from anchorscope.probes.scoring import Scorer
from anchorscope.progress import Progress, Silent
from anchorscope.publish import DatasetResult, LeftOut, publish
from anchorscope.recipe import Recipe
from anchorscope.results import counts_frame, effects_frame, items_frame, probe_tensors, unused_frames
from anchorscope.results_further import experiment_items_frame, experiments_frame, unavailable_frame
from anchorscope.spans.locate import Located, locate_all
from anchorscope.spans.question_spans import QuestionSpans
from anchorscope.spans.question_words import question_words
from anchorscope.store import open_run


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
            job = Job(folder, recipe, loaded, progress or Silent())
            asked = [_ask(job, parse_spec(text)) for text in recipe.datasets]  # all files are read before anything slow
            identity = job.identity  # a resumed run must go on with the same weights
            results, left_out = _datasets(job, asked)
            tokens = (folder.remembered("first_batch_tokens") or 0, job.budget.tokens)
            publish(folder, identity, results, left_out, tokens, job.progress)
    return out


def _ask(job: Job, spec: DatasetSpec) -> tuple[str, Chosen]:
    """The questions of one dataset."""
    made = job.folder.step(f"{spec.name}/questions.json", lambda: ask(job.recipe, spec), records(Chosen))
    return spec.name, made


def _datasets(job: Job, asked: Sequence[tuple[str, Chosen]]) -> tuple[list[DatasetResult], list[LeftOut]]:
    """Every dataset in turn; one with too few answers of either kind does not keep the others from their chart."""
    results, left_out, told = [], [], []
    for name, questions in asked:
        try:
            results.append(_dataset(job, name, questions))
        except TooFewAnswers as error:
            answers = job.folder.stored(f"{name}/answers.json", records(list[Answer]))
            labels = job.folder.stored(f"{name}/labels.json", records(list[Label]))
            left_out.append(LeftOut(name, str(error), *unused_frames(name, questions, answers, labels)))
            told.append(error)
    if not results:
        raise told[0]
    return results, left_out


def _dataset(job: Job, name: str, asked: Chosen) -> DatasetResult:
    """The whole job on one dataset, from its questions to its tables."""
    recipe, step = job.recipe, job.folder.step
    talk = Conversation(lambda: job.lm, asked.questions, job.budget, recipe.prompt)
    answers: list[Answer] = step(
        f"{name}/answers.json", lambda: talk.answer(recipe.max_new_tokens, job.progress), records(list[Answer])
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
        f"{name}/tokens.json", lambda: _locate(job, talk, answers), records(list[Located | None])
    )
    everyone = [Asked(*one) for one in zip(asked.questions, answers, labels, strict=True)]
    used = [index for index, label in enumerate(labels) if label.status == "used"]
    places = [place for index in used if (place := located[index]) is not None]
    splits, groups = _split(recipe, [labels[index] for index in used])

    @cache
    def tokens() -> list[ItemTokens]:
        return [item_tokens(place, job.positions, talk.prefix.length) for place in places]

    @cache
    def compiled() -> bool:
        own = sum(len(one.sequence.ids) - talk.prefix.length for one in tokens())
        return worth_compiling(job.lm, own * (1 + len(chosen(recipe.evidence, recipe.edges))))

    states: Tensor = step(
        f"{name}/states.safetensors", lambda: _clean_states(job, tokens(), talk, compiled()), TENSOR
    )
    probe_sets: dict[str, ProbeSet] = step(f"{name}/probes.safetensors", lambda: _fit(job, states, splits), PROBE_SETS)

    @cache
    def scorer() -> Scorer:
        in_order = [[probe_sets[f"{site}/{position}"] for site in SITES] for position in job.positions]
        return Scorer(in_order, splits.folds, job.lm.device)

    clean: NDArray[np.float32] = step(f"{name}/clean.safetensors", lambda: score_states(scorer(), states), ARRAY)
    measured: Measurements = step(
        f"{name}/effects",
        lambda: measure_all(
            job.lm, spoken_items(talk, everyone, used, places, tokens()), Writer(job.lm.tokenizer, talk.template),
            talk.prefix, scorer(), _plan(job), job.budget, job.progress, compiled(),
        ),
        MEASUREMENTS,
    )  # fmt: skip
    refuse_no_ops(measured.effects, clean)
    refits: dict[str, NDArray[np.floating]] = step(
        f"{name}/refits.safetensors", lambda: _refit(job, measured, splits), ARRAYS
    )
    headline = (recipe.site, recipe.position)
    at = measured_places(splits, groups, job.positions, probe_sets, clean, measured.effects, refits, headline)
    material = Material(
        name, talk, everyone, used, tokens, states, probe_sets, scorer, splits, groups, at, measured.effects, refits
    )
    tables: dict[str, pl.DataFrame] = step(
        f"{name}/tables", lambda: evidence_tables(evidence_of(job, material), job.progress, job.solver), FRAMES
    )
    further = _experiments(job, material)
    missing = [*measured.missing, *(Missing(one, why) for one, found in further.items() for why in found.missing)]
    item_ids = [everyone[index].question.item_id for index in used]
    fold_of = dict(zip(used, splits.folds.tolist(), strict=True))
    return DatasetResult(
        name=name,
        items=items_frame(asked.questions, answers, labels, located, fold_of, tables["pathways"], headline),
        effects=effects_frame(name, item_ids, PROBES, job.positions, clean, measured.effects),
        counts=counts_frame(name, asked, labels, located),
        tables=tables,
        experiments=experiments_frame(job.identity.name, name, headline, further),
        experiment_items=experiment_items_frame(name, item_ids, further),
        unavailable=unavailable_frame(name, missing),
        probes=probe_tensors(name, PROBES, probe_sets),
        reference_layers=tuple(probe_sets["/".join(headline)].reference[0].tolist()),
        unconverged=tuple(one for fitted in probe_sets.values() for one in fitted.unconverged),
    )


def _locate(job: Job, talk: Conversation, answers: Sequence[Answer]) -> list[Located | None]:
    """The exact tokens of every answered question."""
    words: list[QuestionSpans] = question_words(
        job.recipe.exact_tokens, talk.questions, lambda: job.lm, job.budget, job.progress
    )
    return locate_all(job.lm.tokenizer, talk.questions, words, talk.prompts, answers)


def _split(recipe: Recipe, used: Sequence[Label]) -> tuple[Splits, NDArray[np.int64]]:
    """Folds, halves and inner folds of the used items, and their groups."""
    truth = np.array([label.truthful for label in used], dtype=bool)
    groups = np.array([label.group for label in used], dtype=np.int64)
    folds = grouped_folds(groups, truth, recipe.folds, np.random.default_rng([recipe.seed, 4]))
    return make_splits(truth, groups, folds, recipe.seed), groups


def _clean_states(job: Job, tokens: Sequence[ItemTokens], talk: Conversation, compiled: bool) -> Tensor:
    sequences = [one.sequence for one in tokens]
    return clean_states(job.lm, sequences, talk.prefix, job.budget, job.progress, compiled).states


def _fit(job: Job, states: Tensor, splits: Splits) -> dict[str, ProbeSet]:
    names = [f"{site}/{position}" for position in job.positions for site in SITES]
    fitted = fit_probes(states.flatten(0, 1), splits, names, job.lm.device, job.progress)
    return dict(zip(names, fitted, strict=True))


def _plan(job: Job) -> Plan:
    recipe = job.recipe
    needed, before_answer = 2 * MIN_PER_CLASS, recipe.position == "answer_before"
    return Plan(
        recipe.evidence, recipe.edges, job.headline, needed, recipe.evidence_items, recipe.seed, before_answer
    )


def _refit(job: Job, measured: Measurements, splits: Splits) -> dict[str, NDArray[np.floating]]:
    """Probes trained on the states under an intervention, where they are kept."""
    kept = [one for one in measured.effects if one.states is not None]
    return {one.intervention: refit_logits(one, splits, job.progress, job.solver) for one in kept}


def _experiments(job: Job, material: Material) -> dict[str, Found]:
    """The further experiments, each a step of its own; later ones know what earlier ones found."""
    found: dict[str, Found] = {}

    @cache
    def ground() -> Ground:
        return ground_of(job, material)

    def run(experiment: Experiment) -> Found:
        return experiment.run(replace(ground(), further=dict(found)))

    for one in chosen_experiments(job.recipe.evidence):
        step = f"{material.name}/further/{one.name}.json"
        found[one.name] = job.folder.step(step, partial(run, one), FOUND)
    return found
