"""How each step of the pipeline's table is made, in the order of the table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.answers.choose import NEEDED, QuestionSample
from anchorscope.answers.generate import Answer, do_not_fit
from anchorscope.answers.label import Label, balanced_by, grouped_by, label_answers
from anchorscope.artefacts.schema import FEATURE_SCHEMA
from anchorscope.catalogue import DETECTION_RUNS, KNOCKOUT, SAMPLES
from anchorscope.engine.capture import AttentionMass
from anchorscope.engine.sequences import SITES, TokenSequence
from anchorscope.evidence.effects import (
    CleanRun,
    CutStates,
    Effect,
    Measurements,
    measure,
    measured_places,
    refuse_no_ops,
    run_clean,
    with_log_probs,
)
from anchorscope.evidence.further_runs import (
    ANSWER_ONLY,
    PARAPHRASE,
    QUESTION_ONLY,
    RANDOM_WEIGHTS,
    RESAMPLE,
    agreement_columns,
    answer_only_states,
    boosted_states,
    clean_states_at,
    confidence_columns,
    paraphrased_texts,
    random_weight_states,
    resampled_texts,
    rewritten_states,
    truth_column,
)
from anchorscope.evidence.part_tables import (
    PartsOfDataset,
    evidence_items_frame,
    evidence_tests,
    parts_frame,
    tests_frame,
)
from anchorscope.evidence.sources import (
    ANSWER,
    SOURCE,
    choose_pair,
    item_numbers,
    run_exchanged,
    run_sources,
    solve_sources,
    source_frame,
    source_names,
)
from anchorscope.evidence.tables import Evidence, evidence_tables, first_curves
from anchorscope.evidence_parts.parts import (
    BEFORE,
    CUT,
    FEWEST_ANSWERS,
    FEWEST_GROUPS,
    held_out_scores,
    needs_by_name,
    solve_control,
    solve_parts,
)
from anchorscope.evidence_parts.principal import principal_states
from anchorscope.execute.run_passes import run_answers, run_samples
from anchorscope.experiments.experiment import Experiment, ExperimentInputs, Found, chosen_experiments
from anchorscope.interventions.intervention import Intervention
from anchorscope.items import Item
from anchorscope.kept_states import CLEAN, KeptStates
from anchorscope.plan.interventions import Missing, passes_of, plan_experiment
from anchorscope.plan.passes import Place, SamplesPass, plan_answers
from anchorscope.probes.crossfit import (
    PROBES,
    FinalProbe,
    ProbeSet,
    fit_final_probes,
    fit_probes,
    permuted_areas,
    permuted_truth,
    refit_logits,
    score_clean,
)
from anchorscope.result_tables import (
    confidence,
    counts_frame,
    effects_frame,
    experiment_items_frame,
    experiments_frame,
    items_frame,
    probe_tensors,
    unavailable_frame,
    unused_frames,
)
from anchorscope.results import DatasetResult, LeftOut
from anchorscope.spans.locate import ItemTokens, locate_fitting
from anchorscope.stats.streams import priorities, stream
from anchorscope.steps.dataset_run import DatasetRun

Arrays = dict[str, NDArray[np.floating]]
TEMPERATURE, TOP_P = 1.0, 1.0
"""Of the sampled answers: the model's own distribution."""


# Questions, answers, labels, tokens.


def questions(run: DatasetRun) -> QuestionSample:
    """The questions that are asked."""
    return run.read_questions


def answers(run: DatasetRun) -> list[Answer]:
    """The model's own answers, or those that the questions bring."""
    job, writer = run.job, run.job.writer()
    work = plan_answers(
        run["questions"].questions,
        writer.tokenizer,
        writer.template,
        job.recipe.max_new_tokens,
        job.planner.batch_tokens,
        job.planner.context,
    )
    return run_answers(job.executor, work, job.progress)


def labels(run: DatasetRun) -> list[Label]:
    """Which answers are true, which are used, and which belong together."""
    recipe = run.job.recipe
    return label_answers(
        run["questions"].questions,
        run["answers"],
        recipe.balance,
        recipe.group_by,
        recipe.max_per_class,
        recipe.seed,
        recipe.grader,
    )


def tokens(run: DatasetRun) -> list[ItemTokens | None]:
    """The exact tokens of every used question and answer; None for all others."""
    exact_tokens, writer = run.job.recipe.exact_tokens, run.job.writer()
    questions, answers = run["questions"].questions, run["answers"]
    used = [index for index, label in enumerate(run["labels"]) if label.status == "used"]
    own_questions, own_answers = [questions[index] for index in used], [answers[index] for index in used]
    located = locate_fitting(writer.tokenizer, writer.template, own_questions, exact_tokens, own_answers)
    by_index = dict(zip(used, located, strict=True))
    return [by_index.get(index) for index in range(len(questions))]


# The clean pass, and probes.


def _clean_pass(run: DatasetRun) -> CleanRun:
    if "clean" not in run.passes:
        job, items, recipe = run.job, run.used_items, run.job.recipe
        clean = run_clean(
            job.executor,
            job.planner,
            items,
            job.positions,
            job.progress,
            run.is_compiled,
            recipe.edges,
            job.headline[1],
        )
        run.passes = {"clean": clean}
    return run.passes["clean"]


def clean_states(run: DatasetRun) -> Tensor:
    """States of the clean pass, [position, site, layer, item, d_model]."""
    kept = run.kept_states(CLEAN, "clean-states")
    return _clean_pass(run).clean.states if kept is None else kept


def log_probs(run: DatasetRun) -> list[tuple[float, ...]]:
    """How likely the model finds every token of supplied answers."""
    return _clean_pass(run).clean.log_probs


def attention_mass(run: DatasetRun) -> list[AttentionMass]:
    """How much attention each token of every used item receives."""
    return _clean_pass(run).attention


def before_answer(run: DatasetRun) -> Tensor:
    """States that have seen the question only, at the headline site, [layer, item, d_model]."""
    return _clean_pass(run).question_only[0]


def probes(run: DatasetRun) -> dict[str, ProbeSet]:
    """The cross-fitted probes of every site and position."""
    fitted = run.job.fits.divided(fit_probes, run["clean-states"].flatten(0, 1), run.splits, run.probe_names)
    return dict(zip(run.probe_names, fitted, strict=True))


def clean_scores(run: DatasetRun) -> NDArray[np.float32]:
    """Log-odds of the clean states, [item, position, site, probe, layer]."""
    scoring = run.scoring
    return run.job.fits(score_clean, run["clean-states"], scoring.sets, scoring.folds, title="score clean states")


def final_probes(run: DatasetRun) -> dict[str, FinalProbe]:
    """Probes that learn from all items, for use on new ones: at every site and position."""
    states, order = run["clean-states"].flatten(0, 1), priorities(run.job.recipe.seed, "final probe", run.item_ids)
    fitted = run.job.fits.divided(
        fit_final_probes, states, run.splits.strata, run.groups, run.probe_names, order, title="final probes"
    )
    return dict(zip(run.probe_names, fitted, strict=True))


# Interventions.


def effects_of(experiment: str) -> Callable[[DatasetRun], Measurements]:
    """Makes the log-odds under the interventions of an experiment that keeps no states."""

    def effects(run: DatasetRun) -> Measurements:
        return _measure(run, experiment)[0]

    return effects


def knockout_effects(run: DatasetRun) -> Measurements:
    """Log-odds under the knockout and its controls."""
    return _cut_pass(run)[0]


def cut_states(run: DatasetRun) -> dict[str, Tensor]:
    """States under the cuts where they are kept, [place, layer, item, d_model]."""
    names = [intervention.draw_name for intervention in run.keeping_states]
    kept = {name: run.kept_states(name, "cut-states") for name in names}
    if all(states is not None for states in kept.values()):
        return {name: states.flatten(0, 1) for name, states in kept.items() if states is not None}
    n_places, headline = len(run.job.cut_places), run.headline_index
    return {
        name: states[headline : headline + 1] if len(states) > n_places else states
        for name, states in _cut_pass(run)[1].items()
    }


def principal(run: DatasetRun) -> dict[str, Tensor]:
    """Clean and cut states along their principal directions, [place, layer, item, direction]; controls' at the
    headline only. `displacement/…` is how far each cut moves the headline's states, [layer]."""
    reduced, clean = {}, run["clean-states"].flatten(0, 1)
    for name, states in {CLEAN: clean, **_cut_pass(run)[1]}.items():
        at_headline = states[[run.headline_index]] if len(states) > 1 else states
        if name not in (CLEAN, KNOCKOUT):
            states = at_headline
        if name != CLEAN:
            reduced[f"displacement/{name}"] = _displacement(clean[run.headline_index], at_headline[0])
        reduced[name] = _along_directions(run, states.flatten(0, 1), name).unflatten(0, states.shape[:2])
    return reduced


def _displacement(clean: Tensor, cut: Tensor) -> Tensor:
    """|cut − clean| / |clean − mean|, the median over items, [layer]."""
    moved = [
        ((after - before).norm(dim=-1) / (before - before.mean(0)).norm(dim=-1)).median()
        for before, after in zip(clean.float(), cut.float(), strict=True)
    ]
    return torch.stack(moved)


def _along_directions(run: DatasetRun, states: Tensor, name: str) -> Tensor:
    directions = run.directions_of(states.shape[1])
    return run.job.fits(principal_states, states, directions, title=f"principal directions: {name}")


def _cut_pass(run: DatasetRun) -> tuple[Measurements, CutStates]:
    if "cuts" not in run.passes:
        run.passes = {"cuts": _measure(run, KNOCKOUT, partial(_draw_first_chart, run))}
    return run.passes["cuts"]


def _measure(
    run: DatasetRun, experiment: str, after_pass: Callable[[Sequence[Effect]], None] = lambda effects: None
) -> tuple[Measurements, CutStates]:
    job, items, setting = run.job, run.used_items, run.setting
    planned, missing = plan_experiment(run.interventions(experiment), items, setting, job.planner.windows, NEEDED)
    passes = passes_of(planned, items, setting, job.planner, run.is_compiled)

    def keep(intervention: Intervention) -> list[Place]:
        return run.all_places if intervention.name == KNOCKOUT else job.cut_places

    effects, states = measure(job.executor, passes, run.scoring, setting, keep, job.progress, after_pass)
    refuse_no_ops(effects, run["clean-scores"])
    return Measurements(effects, missing), states


def _draw_first_chart(run: DatasetRun, effects: Sequence[Effect]) -> None:
    """The chart of what there is so far: it's there long before the controls and the report."""
    job = run.job
    if job.first_chart is None:
        return
    headline = (job.recipe.site, job.recipe.position)
    fitted, scores = run["probes"], run["clean-scores"]
    measured = measured_places(run.splits, run.groups, job.positions, fitted, scores, effects)[headline]
    variants = {effect.intervention: effect.variant for effect in effects}
    curves = first_curves(job.record.identity.name, run.name, headline, measured, variants, run.weights)
    layers = tuple(fitted["/".join(headline)].reference[0].tolist())
    job.first_chart.draw(run.name, curves, layers, job.record.identity.n_layers)


def refits(run: DatasetRun) -> Arrays:
    """Out-of-fold log-odds of probes trained on the cut states, [layer, item]."""
    states = run.headline_cut_states()
    first = [intervention.name for intervention in run.keeping_states if intervention.draw == 0]
    calls = [(name, states[name], run.splits) for name in first]
    found = run.job.fits.each(refit_logits, calls, [f"refit {name}" for name in first])
    return dict(zip(first, found, strict=True))


def permuted_refits(run: DatasetRun) -> Arrays:
    """AUC of probes trained on the cut states and permuted labels, [permutation]: what chance is for the refit."""
    job, states = run.job, run.headline_cut_states()[KNOCKOUT]
    reference = run["probes"][f"{job.recipe.site}/{job.recipe.position}"].reference[0]
    permuted = permuted_truth(run.splits, stream(job.recipe.seed, "permuted labels", run.name))
    return {KNOCKOUT: job.fits(permuted_areas, states, run.splits, reference, permuted, title="permuted labels")}


# The parts of the evidence.


def evidence_terms(run: DatasetRun) -> Arrays:
    """The terms of every view and control, held-out scores, and displacements; scores alone of too few answers."""
    states, headline, items = dict(run["principal-states"]), run.headline_index, run.evidence_items
    moved = {name: states.pop(name).numpy() for name in list(states) if name.startswith("displacement/")}
    if not items.are_enough:
        scores = run.job.fits(held_out_scores, states[CLEAN][headline], items, "", title="evidence")
        return {"scores/clean": scores, **moved}
    states[BEFORE] = _along_directions(run, run["before-answer"], BEFORE)[None]
    return moved | run.job.fits(solve_parts, states, items, headline, _floor(run), title="evidence")


def _floor(run: DatasetRun) -> int:
    """Another site of the headline's position, whose clean state is the view of the floor."""
    position, site = run.job.headline
    return run.all_places.index((position, (site + 1) % len(SITES)))


def answer_alone(run: DatasetRun) -> Tensor:
    """States of the answer without its question, [layer, item, d_model]."""
    job = run.job
    return answer_only_states(job.executor, job.planner, run.used_items, run.setting, job.headline, job.progress)


def null_scores(run: DatasetRun) -> Arrays:
    """Log-odds by probes that read the question only or the answer only, at the headline place, [layer, item]."""
    states = {QUESTION_ONLY: run["before-answer"], ANSWER_ONLY: run["answer-alone"]}
    return {
        name: run.job.fits(held_out_scores, _along_directions(run, one, name), run.evidence_items, name, title=name)
        for name, one in states.items()
    }


def random_weight_terms(run: DatasetRun) -> Arrays:
    """The terms of random weights of the model's shape; made where asked for."""
    job, items = run.job, run.evidence_items
    states = random_weight_states(job.executor, job.planner, run.used_items, run.setting, job.headline, job.progress)
    reduced = {
        view: _along_directions(run, part, RANDOM_WEIGHTS)
        for view, part in zip((CLEAN, CUT, BEFORE), states, strict=True)
    }
    if not items.are_enough:
        scores = job.fits(held_out_scores, reduced[CLEAN], items, RANDOM_WEIGHTS, title=RANDOM_WEIGHTS)
        return {f"scores/{RANDOM_WEIGHTS}": scores}
    return job.fits(solve_control, reduced, items, RANDOM_WEIGHTS, title=RANDOM_WEIGHTS)


def source_terms(run: DatasetRun) -> Arrays:
    """The terms of every source's view and control, and numbers of every item; nothing without passages or thinking."""
    job, items, (position, site) = run.job, run.used_items, run.job.headline
    names = source_names(items)
    if not names:
        return {}
    clean, log_odds = run["clean-states"][position, site], run["clean-scores"][:, position, site, 0].T
    probes = run.scoring.probes(only=(position, site, 0))
    passes = job.executor, job.planner, items, run.setting, job.headline, clean, log_odds, probes
    ran, log_probs = run_sources(*passes, run.is_compiled, job.progress)
    numbers = item_numbers(items, ran, clean, log_odds, log_probs, run["attention-mass"], run.headline_band)
    if not run.evidence_items.are_enough:
        return numbers
    states = {key: cut.states for key, cut in ran.items()}
    states |= run_exchanged(job.executor, job.planner, items, run.setting, job.headline, clean, job.progress)
    views = {key: _along_directions(run, view, "/".join(key)) for key, view in states.items()}
    views[SOURCE, ANSWER] = _along_directions(run, run["before-answer"], ANSWER)
    pair, reduced = choose_pair(job.recipe.parts, names), _along_directions(run, clean, CLEAN)
    return numbers | job.fits(solve_sources, reduced, views, pair, run.evidence_items, title="sources")


def resample_terms(run: DatasetRun) -> Arrays:
    """The terms with another item's key words put in; made where patching is asked for."""
    return _rewritten_terms(run, RESAMPLE, resampled_texts(run.used_items, run.setting), BEFORE)


def paraphrase_terms(run: DatasetRun) -> Arrays:
    """The terms of the question in another sentence; made where other wordings are asked for."""
    return _rewritten_terms(run, PARAPHRASE, paraphrased_texts(run.used_items, run.setting))


def _rewritten_terms(run: DatasetRun, name: str, texts: Mapping[int, TokenSequence], *beside: str) -> Arrays:
    """The terms of a view that reads other texts, of the items that have one; empty where they are too few."""
    job, some = run.job, np.array(sorted(texts), dtype=np.int64)
    items = run.evidence_items.take(some)
    if not items.are_enough:
        if run.evidence_items.are_enough:
            job.folder.tell(
                f"{run.name}: {name} is not measured: {len(some)} answers have such a text, {FEWEST_ANSWERS} answers "
                f"in {FEWEST_GROUPS} groups are needed"
            )
        return {}
    sequences = [texts[index] for index in some.tolist()]
    prefix = run.used_items[0].located.input_ids[: run.used_items[0].located.prefix_length]
    view = rewritten_states(job.executor, job.planner, sequences, prefix, job.headline, name, job.progress)
    clean = run["clean-states"].flatten(0, 1)[run.headline_index][:, some]
    states = {CLEAN: clean, CUT: view} | dict.fromkeys(beside, run["before-answer"][:, some])
    reduced = {view: _along_directions(run, part, name) for view, part in states.items()}
    terms = job.fits(solve_control, reduced, items, name, title=name)
    return terms | {f"items/{name}": some, f"displacement/{name}": _displacement(clean, view).numpy()}


def part_tables(run: DatasetRun) -> dict[str, pl.DataFrame]:
    """evidence_parts, evidence_items and evidence_tests."""
    job = run.job
    job.progress.start("evidence: tables", 1)
    further = (f"evidence-{name}" for name in (RANDOM_WEIGHTS, RESAMPLE, PARAPHRASE))
    stored = run["evidence-terms"].copy()
    for name in further:
        stored |= run[name] if name in run.steps else {}
    places = [(SITES[site], job.positions[position]) for position, site in run.all_places]
    parts = PartsOfDataset(
        job.record.identity.name,
        run.name,
        run.evidence_items,
        needs_by_name(stored),
        places,
        run.headline_index,
        job.record.identity.n_layers,
        run.headline_band,
        run.n_directions,
        {
            name.removeprefix("items/"): run.evidence_items.take(some)
            for name, some in stored.items()
            if name.startswith("items/")
        },
    )
    tests = evidence_tests(parts, stored, run["null-scores"], run.weights)
    tables = {
        "evidence_parts": pl.concat([parts_frame(parts), source_frame(parts, _stored_sources(run))]),
        "evidence_items": evidence_items_frame(parts),
        "evidence_tests": tests_frame(tests, parts),
    }
    job.progress.advance(1)
    job.progress.finish()
    return tables


def _stored_sources(run: DatasetRun) -> Arrays:
    return run["source-terms"] if "source-terms" in run.steps else {}


# What detectors read (`--keep detection`).


def samples(run: DatasetRun) -> list[list[str]]:
    """Sampled answers to the questions of the used items."""
    job, writer = run.job, run.job.writer()
    asked = [replace(item.question, model_answer=None) for item in run.used_items]
    longest, batch = job.recipe.max_new_tokens, job.planner.batch_tokens
    plan = plan_answers(asked, writer.tokenizer, writer.template, longest, batch)
    work = SamplesPass(plan, max(SAMPLES), job.recipe.seed, TEMPERATURE, TOP_P)
    return [[answer.text for answer in drawn] for drawn in run_samples(job.executor, work, job.progress)]


def detection_columns(run: DatasetRun) -> Arrays:
    """Numbers of the used items, by the names of features.parquet."""
    job, items = run.job, run.used_items
    return {
        **confidence_columns(job.executor, job.planner, items, run.setting, job.progress),
        **truth_column(job.executor, job.planner, items, job.writer(), job.progress),
        **agreement_columns(items, run["detection-samples"]),
    }


def detection_states(run: DatasetRun) -> dict[str, Tensor]:
    """States at the headline place in the runs of `DETECTION_RUNS`, [layer, item, d_model]."""
    kept = {name: run.kept_states(name, "detection-states") for name in DETECTION_RUNS}
    if all(states is not None for states in kept.values()):
        return {name: states[0, 0] for name, states in kept.items() if states is not None}
    job, items, setting = run.job, run.used_items, run.setting
    states = {"answer-only": run["answer-alone"], "question-only": run["before-answer"]}
    states |= boosted_states(job.executor, job.planner, items, setting, job.headline, run.is_compiled, job.progress)
    if job.planner.has_room_for_twin:
        title = "random weights, clean"
        states[RANDOM_WEIGHTS] = clean_states_at(
            job.executor, job.planner, items, setting, job.headline, title, job.progress, random_weights=True
        )
    else:
        job.folder.tell(
            f"{run.name}: states of {RANDOM_WEIGHTS} are left out; a second model of this size does not fit "
            f"beside the first"
        )
    return states


# Tables and experiments.


def tables(run: DatasetRun) -> dict[str, pl.DataFrame]:
    """Curves, scores, pathways and summary."""
    recipe, used = run.job.recipe, run.used_items
    given = with_log_probs([item.answer for item in used], run["log-probs"])
    sure = [confidence(answer) for answer in given]
    evidence = Evidence(
        model=run.job.record.identity.name,
        dataset=run.name,
        item_ids=run.item_ids,
        questions=[item.question.question for item in used],
        answers=[answer.text for answer in given],
        relations=[item.question.relation for item in used],
        confidence_mean=[mean for mean, _ in sure],
        confidence_min=[least for _, least in sure],
        variants={effect.intervention: effect.variant for made in run.effects for effect in made.effects},
        places=run.measured,
        refits=run["refits"],
        headline=(recipe.site, recipe.position),
        weights=run.weights,
        permuted=run["permuted-refits"],
    )
    return run.job.fits(evidence_tables, evidence, title="evidence")


def experiment_of(experiment: Experiment) -> Callable[[DatasetRun], Found]:
    """Makes what an experiment beyond interventions finds."""

    def run_experiment(run: DatasetRun) -> Found:
        return experiment.run(_experiment_inputs(run))

    return run_experiment


def _experiment_inputs(run: DatasetRun) -> ExperimentInputs:
    job, recipe, (position, site) = run.job, run.job.recipe, run.job.headline
    return ExperimentInputs(
        dataset=run.name,
        items=run.items_with_log_probs,
        used=run.used,
        states=lambda: run["clean-states"][position, site],
        cut_states=run.headline_cut_states,
        states_before_answer=lambda: run["before-answer"],
        scoring=run.scoring,
        splits=run.splits,
        measured=run.measured[recipe.site, recipe.position],
        headline=job.headline,
        weights=run.weights,
        setting=run.setting,
        window=recipe.window,
        max_new_tokens=recipe.max_new_tokens,
        executor=job.executor,
        planner=job.planner,
        device=job.solver,
        progress=job.progress,
        sources=lambda: _stored_sources(run),
        band=run.headline_band,
    )


# What the run publishes.


def dataset_result(run: DatasetRun) -> DatasetResult:
    """Everything that a dataset contributes to the result files."""
    job, headline = run.job, (run.job.recipe.site, run.job.recipe.position)
    found = {name: run[f"experiment-{name}"] for name in _experiment_names(run)}
    missing = [absent for made in run.effects for absent in made.missing]
    missing += [Missing(name, why) for name, result in found.items() for why in result.missing]
    folds = dict(zip(run.used.tolist(), run.splits.folds.tolist(), strict=True))
    sets, asked = run["probes"], [item.question for item in run.used_items]
    effects = [effect for made in run.effects for effect in made.effects]
    too_long = do_not_fit(run["answers"], job.planner.context)
    return DatasetResult(
        name=run.name,
        items=items_frame(run.items_with_log_probs, folds, run["tables"]["pathways"], headline),
        effects=effects_frame(run.name, run.item_ids, PROBES, job.positions, run["clean-scores"], effects),
        counts=counts_frame(run.name, run["questions"], run.items),
        tables={**run["tables"], **run["evidence-parts"]},
        experiments=experiments_frame(job.record.identity.name, run.name, headline, found),
        experiment_items=experiment_items_frame(run.name, run.item_ids, found),
        unavailable=unavailable_frame(run.name, missing),
        probes=probe_tensors(run.name, PROBES, sets, run["final-probes"]),
        reference_layers=tuple(sets["/".join(headline)].reference[0].tolist()),
        balanced_by=balanced_by(asked, job.recipe.balance),
        grouped_by=grouped_by(asked, job.recipe.group_by),
        unconverged=tuple(name for fitted in sets.values() for name in fitted.unconverged),
        kept=_kept(run),
        features=_features(run) if "detection" in job.recipe.keep else None,
        notes=(
            *((f"{run.name}: {too_long}",) if too_long else ()),
            *dict.fromkeys(note for fitted in sets.values() for note in fitted.notes),
        ),
    )


def _experiment_names(run: DatasetRun) -> list[str]:
    return [experiment.name for experiment in chosen_experiments(run.job.recipe.evidence)]


def _features(run: DatasetRun) -> pl.DataFrame:
    """features.parquet."""
    columns = {"item_id": run.item_ids, **run["detection-columns"]}
    return pl.DataFrame({name: columns[name] for name in FEATURE_SCHEMA}, schema=FEATURE_SCHEMA)


def _kept(run: DatasetRun) -> list[KeptStates]:
    """The states that the run keeps."""
    job, keep = run.job, run.job.recipe.keep

    def kept(step: str, name: str, states: Tensor, positions: tuple[str, ...], sites: tuple[str, ...]) -> KeptStates:
        ids, key = tuple(run.item_ids), run.result(step).key
        return KeptStates(run.name, name, states, positions, run.kept_layers, ids, key, sites)

    states = [kept("clean-states", CLEAN, run["clean-states"], job.positions, SITES)] if "states" in keep else []
    if "states-cut" in keep:
        for name, cut in run["cut-states"].items():
            by_place = cut.unflatten(0, (len(job.positions), len(SITES)))
            states.append(kept("cut-states", name, by_place, job.positions, SITES))
    if "detection" in keep:
        for name, one in run["detection-states"].items():
            headline = (job.recipe.position,), (job.recipe.site,)
            states.append(kept("detection-states", name, one[None, None], *headline))
    return states


def left_out(run: DatasetRun, reason: str) -> LeftOut:
    """A dataset with too few answers: its items and counts."""
    rows = zip(run["questions"].questions, run["answers"], run["labels"], strict=True)
    items = [Item(*row, None) for row in rows]
    return LeftOut(run.name, reason, *unused_frames(run.name, run["questions"], items))
