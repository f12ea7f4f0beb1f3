"""How each step of the pipeline's table is made, in the order of the table."""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch import Tensor

from anchorscope import result_tables
from anchorscope.answers.choose import NEEDED, QuestionSample
from anchorscope.answers.generate import Answer
from anchorscope.answers.label import Label, label_answers
from anchorscope.answers.template import decode_all_exactly
from anchorscope.artefacts.sealed_folder import MANIFEST
from anchorscope.artefacts.step import Arrays
from anchorscope.catalogue import DETECTION_RUNS, KNOCKOUT, SAMPLES
from anchorscope.engine.capture import AttentionMass
from anchorscope.engine.sequences import SITES, TokenSequence
from anchorscope.errors import UserError
from anchorscope.evidence import further_runs, part_tables, sources
from anchorscope.evidence.effects import (
    CleanRun,
    CutStates,
    Effect,
    Measurements,
    measure,
    refuse_no_ops,
    run_clean,
)
from anchorscope.evidence.further_runs import (
    ANSWER_ONLY,
    PARAPHRASE,
    QUESTION_ONLY,
    RANDOM_WEIGHTS,
    RESAMPLE,
)
from anchorscope.evidence.source_use import kinds_of
from anchorscope.evidence.tables import Evidence, evidence_tables, first_curves
from anchorscope.evidence_parts import parts
from anchorscope.evidence_parts.parts import BEFORE, CUT, EvidenceItems
from anchorscope.evidence_parts.principal import displacement, principal_states
from anchorscope.execute.run_passes import run_answers, run_decoding
from anchorscope.experiments.experiment import Experiment, ExperimentInputs, Found
from anchorscope.interventions.intervention import Intervention
from anchorscope.kept_states import BEFORE_ANSWER, CLEAN
from anchorscope.plan.interventions import passes_of, plan_experiment
from anchorscope.plan.passes import Place, plan_answers, plan_thinking, with_thinking_of
from anchorscope.probes import crossfit
from anchorscope.probes.crossfit import ProbeSet
from anchorscope.spans.locate import ItemTokens, locate_fitting
from anchorscope.stats.streams import stream
from anchorscope.steps.job import DatasetRun

_CHART = "figures/delta_p.png"

# Questions, answers, labels, tokens.


def questions(run: DatasetRun) -> QuestionSample:
    """The questions that are asked."""
    return run.read_questions


def thinking(run: DatasetRun) -> QuestionSample:
    """The questions with what the model thinks about them; without those whose thinking never closes."""
    job, writer, sample = run.job, run.job.writer(), run["questions"]
    most, context = job.recipe.thinking, job.planner.context
    work = plan_thinking(
        sample.questions,
        writer.tokenizer,
        writer.template,
        most,
        job.planner.batch_tokens,
    )
    longest = max(map(len, work.prompts)) + most
    if context is not None and longest > context:
        raise UserError(
            f"--thinking {most}: the longest prompt and its thinking take {longest:,} tokens, the model's context has "
            f"{context:,}; give fewer tokens, or shorter passages."
        )
    decoded = run_decoding(job.executor, work, job.progress)
    texts = decode_all_exactly(writer.tokenizer, [written.ids for written in decoded])
    closed = with_thinking_of(sample.questions, texts)
    never = len(texts) - len(closed)
    if never:
        job.folder.tell(
            f"{run.name}: {never:,} of {len(texts):,} answers never close their thinking; more --thinking?"
        )
    if not closed:
        raise UserError(
            f"No answer to {run.name!r} closes its thinking within {most} tokens; raise --thinking."
        )
    return replace(sample, questions=closed)


def answers(run: DatasetRun) -> list[Answer]:
    """The model's own answers, or those that the questions bring."""
    job, writer = run.job, run.job.writer()
    asked, longest, planner = (
        run.sample.questions,
        job.recipe.max_new_tokens,
        job.planner,
    )
    work = plan_answers(
        asked,
        writer.tokenizer,
        writer.template,
        longest,
        planner.batch_tokens,
        planner.context,
    )
    return run_answers(job.executor, work, job.progress)


def labels(run: DatasetRun) -> list[Label]:
    """Which answers are true, which are used, and which belong together."""
    recipe = run.job.recipe
    options = (
        recipe.balance,
        recipe.group_by,
        recipe.max_per_class,
        recipe.seed,
        recipe.grader,
    )
    return label_answers(run.sample.questions, run["answers"], *options)


def tokens(run: DatasetRun) -> list[ItemTokens | None]:
    """The exact tokens of every used question and answer; None for all others."""
    exact_tokens, writer = run.job.recipe.exact_tokens, run.job.writer()
    questions, answers = run.sample.questions, run["answers"]
    used = [
        index for index, label in enumerate(run["labels"]) if label.status == "used"
    ]
    own_questions, own_answers = (
        [questions[index] for index in used],
        [answers[index] for index in used],
    )
    located = locate_fitting(
        writer.tokenizer, writer.template, own_questions, exact_tokens, own_answers
    )
    by_index = dict(zip(used, located, strict=True))
    return [by_index.get(index) for index in range(len(questions))]


# The clean pass, and probes.


def _clean_pass(run: DatasetRun) -> CleanRun:
    if "clean" not in run.passes:
        job, edges, site = run.job, run.job.recipe.edges, run.job.headline[1]
        inputs = job.executor, job.planner, run.used_items, job.positions, job.progress
        run.passes = {"clean": run_clean(*inputs, run.is_compiled, edges, site)}
    return run.passes["clean"]


def clean_states(run: DatasetRun) -> Tensor:
    """States of the clean pass, [position, site, layer, item, d_model]."""
    earlier = run.kept_states("clean-states", [CLEAN])
    return earlier[CLEAN] if earlier else _clean_pass(run).states


def log_probs(run: DatasetRun) -> list[tuple[float, ...]]:
    """How likely the model finds every token of supplied answers."""
    return _clean_pass(run).log_probs


def attention_mass(run: DatasetRun) -> list[AttentionMass]:
    """How much attention each token of every used item receives."""
    return _clean_pass(run).attention


def before_answer(run: DatasetRun) -> Tensor:
    """States that have seen the question only, at the headline site, [layer, item, d_model]."""
    earlier = run.kept_states("before-answer", [BEFORE_ANSWER])
    return (
        earlier[BEFORE_ANSWER][0, 0] if earlier else _clean_pass(run).question_only[0]
    )


def probes(run: DatasetRun) -> dict[str, ProbeSet]:
    """The cross-fitted probes of every site and position."""
    fitted = crossfit.fit_probes(
        run["clean-states"].flatten(0, 1),
        run.splits,
        run.probe_names,
        device=run.job.fit_device,
        progress=run.job.progress,
    )
    return dict(zip(run.probe_names, fitted, strict=True))


def clean_scores(run: DatasetRun) -> NDArray[np.float32]:
    """Log-odds of the clean states, [item, position, site, layer]."""
    return crossfit.score_clean(
        run["clean-states"],
        run.scoring.sets,
        run.scoring.folds,
        device=run.job.fit_device,
        progress=run.job.progress,
    )


# Interventions.


def effects_of(experiment: str) -> Callable[[DatasetRun], Measurements]:
    """Makes the log-odds under the interventions of an experiment."""

    def effects(run: DatasetRun) -> Measurements:
        return (
            _cut_pass(run)[0]
            if experiment == KNOCKOUT
            else _measure(run, experiment)[0]
        )

    return effects


def cut_states(run: DatasetRun) -> dict[str, Tensor]:
    """States under the cuts at the headline, [layer, item, d_model]."""
    earlier = run.kept_states("cut-states", run.keeping_states)
    if earlier:
        return {name: states[0, 0] for name, states in earlier.items()}
    cut = {name: _cut_pass(run)[1][name] for name in run.keeping_states}
    return {
        name: states[run.headline_index if len(states) > 1 else 0]
        for name, states in cut.items()
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
            reduced[f"displacement/{name}"] = displacement(
                clean[run.headline_index], at_headline[0]
            )
        reduced[name] = _along_directions(run, states.flatten(0, 1), name).unflatten(
            0, states.shape[:2]
        )
    return reduced


def _along_directions(run: DatasetRun, states: Tensor, name: str) -> Tensor:
    return principal_states(
        states,
        run.directions_of(states.shape[1]),
        device=run.job.fit_device,
        progress=run.job.progress,
        title=f"principal directions: {name}",
    )


def _cut_pass(run: DatasetRun) -> tuple[Measurements, CutStates]:
    if "cuts" not in run.passes:
        run.passes = {"cuts": _measure(run, KNOCKOUT, partial(_draw_first_chart, run))}
    return run.passes["cuts"]


def _measure(
    run: DatasetRun,
    experiment: str,
    after_pass: Callable[[Sequence[Effect]], None] = lambda effects: None,
) -> tuple[Measurements, CutStates]:
    job, items, setting = run.job, run.used_items, run.setting
    planned, missing = plan_experiment(
        run.interventions(experiment), items, setting, job.planner.windows, NEEDED
    )
    passes = passes_of(planned, items, setting, job.planner, run.is_compiled)

    def keep(intervention: Intervention) -> list[Place]:
        return job.places if intervention.name == KNOCKOUT else [job.headline]

    effects, states = measure(
        job.executor, passes, run.scoring, setting, keep, job.progress, after_pass
    )
    refuse_no_ops(effects, run["clean-scores"])
    return Measurements(effects, missing), states


def _draw_first_chart(run: DatasetRun, effects: Sequence[Effect]) -> None:
    """ΔP of all datasets so far, drawn as soon as the knockout is there; the report replaces it.

    It is in the index, so that `verify` accepts a run that was stopped before that.
    """
    job, headline = run.job, (run.job.recipe.site, run.job.recipe.position)
    is_wanted = (
        job.recipe.report
        and not job.for_detectors
        and MANIFEST not in job.folder.results
    )
    if not is_wanted or run.name in job.first_curves:
        return
    from anchorscope.report.charts import (
        preliminary_chart,
    )  # only here: matplotlib takes a second

    measured, layers = (
        run.measured_at_places(effects)[headline],
        tuple(run.headline_probes.reference.tolist()),
    )
    variants = {effect.intervention: effect.variant for effect in effects}
    curves = first_curves(
        job.model_name, run.name, headline, measured, variants, run.weights
    )
    job.first_curves[run.name] = curves, layers
    chart = preliminary_chart(
        pl.concat([curves for curves, _ in job.first_curves.values()]),
        {name: layers for name, (_, layers) in job.first_curves.items()},
        job.record.identity.n_layers,
        "PRELIMINARY: controls are still running; the report replaces this chart.",
    )
    content = io.BytesIO()
    chart.write(content, "png")
    job.folder.write_early(_CHART, content.getvalue())
    if len(job.first_curves) == 1:
        job.progress.note(
            f"first chart: {job.folder.path / _CHART} (preliminary, controls still running)"
        )


def refits(run: DatasetRun) -> Arrays:
    """Out-of-fold log-odds of probes trained on the cut states, [layer, item]."""
    job = run.job
    return {
        name: crossfit.refit_logits(
            name, states, run.splits, progress=job.progress, device=job.fit_device
        )
        for name, states in run["cut-states"].items()
    }


def permuted_refits(run: DatasetRun) -> Arrays:
    """AUC of probes trained on the cut states and permuted labels, [permutation]: what chance is for the refit."""
    permuted = crossfit.permuted_truth(
        run.splits, stream(run.job.recipe.seed, "permuted labels", run.name)
    )
    areas = crossfit.permuted_areas(
        run["cut-states"][KNOCKOUT],
        run.splits,
        run.headline_probes.reference,
        permuted,
        device=run.job.fit_device,
        progress=run.job.progress,
    )
    return {KNOCKOUT: areas}


# The parts of the evidence.


def evidence_terms(run: DatasetRun) -> Arrays:
    """The terms of every view and control, held-out scores, and displacements; scores alone of too few answers."""
    states = dict(run["principal-states"])
    moved = {
        name: states.pop(name).numpy()
        for name in list(states)
        if name.startswith("displacement/")
    }
    states[BEFORE] = _along_directions(run, run["before-answer"], BEFORE)[None]
    position, site = run.job.headline
    # another site, whose clean state is its view
    floor = run.job.places.index((position, (site + 1) % len(SITES)))
    return moved | parts.solve_parts(
        states,
        run.evidence_items,
        run.headline_index,
        floor,
        device=run.job.fit_device,
        progress=run.job.progress,
    )


def answer_alone(run: DatasetRun) -> Tensor:
    """States of the answer without its question, [layer, item, d_model]."""
    return further_runs.answer_only_states(run.headline_passes)


def null_scores(run: DatasetRun) -> Arrays:
    """Log-odds by probes that read the question only or the answer only, at the headline place, [layer, item]."""
    views = {QUESTION_ONLY: run["before-answer"], ANSWER_ONLY: run["answer-alone"]}
    reduced = {
        name: _along_directions(run, states, name) for name, states in views.items()
    }
    return {
        name: parts.held_out_scores(
            states,
            run.evidence_items,
            name,
            device=run.job.fit_device,
            progress=run.job.progress,
        )
        for name, states in reduced.items()
    }


def random_weight_terms(run: DatasetRun) -> Arrays:
    """The terms of random weights of the model's shape; made where asked for."""
    states = further_runs.random_weight_states(run.headline_passes)
    views = dict(zip((CLEAN, CUT, BEFORE), states, strict=True))
    return _solve_control(run, views, run.evidence_items, RANDOM_WEIGHTS)


def _solve_control(
    run: DatasetRun, states: Mapping[str, Tensor], items: EvidenceItems, name: str
) -> Arrays:
    reduced = {
        view: _along_directions(run, part, f"{name}, {view}")
        for view, part in states.items()
    }
    return parts.solve_control(
        reduced, items, name, device=run.job.fit_device, progress=run.job.progress
    )


def source_terms(run: DatasetRun) -> Arrays:
    """The terms of every source's view and control, and numbers of every item; nothing without passages or thinking."""
    job, items, (position, site) = run.job, run.used_items, run.job.headline
    names = sources.source_names(items)
    if not names:
        return {}
    clean, log_odds = (
        run["clean-states"][position, site],
        run["clean-scores"][:, position, site].T,
    )
    own_probes = run.scoring.probes(only=(position, site))
    ran, log_probs = sources.run_sources(
        run.headline_passes, clean, log_odds, own_probes
    )
    numbers = sources.item_numbers(
        items, ran, clean, log_odds, log_probs, run["attention-mass"], run.headline_band
    )
    if not run.evidence_items.are_enough:
        return numbers
    states = {key: cut.states for key, cut in ran.items()}
    states |= sources.run_exchanged(run.headline_passes, clean)
    views = {
        key: _along_directions(run, view, "/".join(key)) for key, view in states.items()
    }
    views[sources.SOURCE, sources.ANSWER] = _along_directions(
        run, run["before-answer"], sources.ANSWER
    )
    pair, reduced = (
        sources.choose_pair(job.recipe.parts, names),
        _along_directions(run, clean, CLEAN),
    )
    return numbers | sources.solve_sources(
        reduced,
        views,
        pair,
        run.evidence_items,
        kinds=kinds_of(items),
        device=job.fit_device,
        progress=job.progress,
    )


def resample_terms(run: DatasetRun) -> Arrays:
    """The terms with another item's key words put in; made where patching is asked for."""
    return _rewritten_terms(
        run, RESAMPLE, further_runs.resampled_texts(run.used_items, run.setting), BEFORE
    )


def paraphrase_terms(run: DatasetRun) -> Arrays:
    """The terms of the question in another sentence; made where other wordings are asked for."""
    return _rewritten_terms(
        run, PARAPHRASE, further_runs.paraphrased_texts(run.used_items, run.setting)
    )


def _rewritten_terms(
    run: DatasetRun, name: str, texts: Mapping[int, TokenSequence], *beside: str
) -> Arrays:
    """The terms of a view that reads other texts, of the items that have one; empty where they are too few."""
    job, some = run.job, np.array(sorted(texts), dtype=np.int64)
    items = run.evidence_items.take(some)
    if not items.are_enough:
        if run.evidence_items.are_enough:
            needed = f"{parts.FEWEST_ANSWERS} answers in {parts.FEWEST_GROUPS} groups are needed"
            job.folder.tell(
                f"{run.name}: {name} is not measured: {len(some)} answers have such a text, {needed}"
            )
        return {}
    view = further_runs.rewritten_states(
        run.headline_passes, [texts[index] for index in some.tolist()], name
    )
    clean = run["clean-states"].flatten(0, 1)[run.headline_index][:, some]
    states = {CLEAN: clean, CUT: view} | dict.fromkeys(
        beside, run["before-answer"][:, some]
    )
    terms = _solve_control(run, states, items, name)
    return terms | {
        f"items/{name}": some,
        f"displacement/{name}": displacement(clean, view).numpy(),
    }


def evidence_parts(run: DatasetRun) -> dict[str, pl.DataFrame]:
    """evidence_parts, evidence_items and evidence_tests."""
    job, items = run.job, run.evidence_items
    stored = run["evidence-terms"].copy()
    for name in (RANDOM_WEIGHTS, RESAMPLE, PARAPHRASE):
        stored |= run.made(f"evidence-{name}")
    subsets = {
        name.removeprefix("items/"): some
        for name, some in stored.items()
        if name.startswith("items/")
    }
    dataset = part_tables.PartsOfDataset(
        job.model_name,
        run.name,
        items,
        parts.needs_by_name(stored),
        [(SITES[site], job.positions[position]) for position, site in job.places],
        run.headline_index,
        job.record.identity.n_layers,
        run.headline_band,
        run.directions_of(len(run.used_items)),
        {name: items.take(some) for name, some in subsets.items()},
    )
    tests = part_tables.evidence_tests(dataset, stored, run["null-scores"], run.weights)
    of_sources = sources.source_frame(dataset, run.made("source-terms"))
    return {
        "evidence_parts": pl.concat([part_tables.parts_frame(dataset), of_sources]),
        "evidence_items": part_tables.evidence_items_frame(dataset),
        "evidence_tests": part_tables.tests_frame(tests, dataset),
    }


# What detectors read (`--keep detection`).


def samples(run: DatasetRun) -> list[list[Answer]]:
    """Sampled answers to the questions of the used items, from the model's own distribution."""
    job, writer, number = run.job, run.job.writer(), max(SAMPLES)
    asked = [replace(item.question, model_answer=None) for item in run.used_items]
    longest, batch = job.recipe.max_new_tokens, job.planner.batch_tokens
    plan = plan_answers(asked, writer.tokenizer, writer.template, longest, batch)
    written = run_answers(
        job.executor, plan.sampled(number, job.recipe.seed), job.progress
    )
    return [written[first : first + number] for first in range(0, len(written), number)]


def detection_columns(run: DatasetRun) -> Arrays:
    """Numbers of the used items, by the names of features.parquet."""
    passes, sampled = run.headline_passes, run["detection-samples"]
    texts = [[answer.text for answer in answers] for answers in sampled]
    return {
        **further_runs.confidence_columns(passes),
        **further_runs.truth_column(passes),
        **further_runs.agreement_columns(run.used_items, texts),
        f"eigen_score_{max(SAMPLES)}": further_runs.eigen_scores(passes, sampled),
    }


def detection_states(run: DatasetRun) -> dict[str, Tensor]:
    """States at the headline place in the runs of `DETECTION_RUNS`, [layer, item, d_model]."""
    job, earlier = run.job, run.kept_states("detection-states", DETECTION_RUNS)
    if earlier:
        return {name: states[0, 0] for name, states in earlier.items()}
    states = {
        "answer-only": run["answer-alone"],
        "answer-mean": further_runs.mean_answer_states(run.headline_passes),
    }
    states |= further_runs.boosted_states(run.headline_passes)
    if job.planner.has_room_for_twin:
        title = "random weights, clean"
        states[RANDOM_WEIGHTS] = further_runs.clean_states_at(
            run.headline_passes, title, random_weights=True
        )
    else:
        why = "a second model of this size does not fit beside the first"
        job.folder.tell(f"{run.name}: states of {RANDOM_WEIGHTS} are left out; {why}")
    return states


# Tables and experiments.


def tables(run: DatasetRun) -> dict[str, pl.DataFrame]:
    """Curves, scores, pathways and summary."""
    recipe, used = (
        run.job.recipe,
        [run.items_with_log_probs[index] for index in run.used],
    )
    sure = [result_tables.confidence(item.answer) for item in used]
    evidence = Evidence(
        model=run.job.model_name,
        dataset=run.name,
        item_ids=run.item_ids,
        questions=[item.question.question for item in used],
        answers=[item.answer.text for item in used],
        relations=run.relations,
        confidence_mean=[mean for mean, _ in sure],
        confidence_min=[least for _, least in sure],
        variants={effect.intervention: effect.variant for effect in run.effects},
        places=run.measured,
        refits=run["refits"],
        headline=(recipe.site, recipe.position),
        weights=run.weights,
        permuted=run["permuted-refits"],
    )
    return evidence_tables(evidence, run.job.progress, run.job.fit_device)


def experiment_of(experiment: Experiment) -> Callable[[DatasetRun], Found]:
    """Makes what an experiment beyond interventions finds."""

    def run_experiment(run: DatasetRun) -> Found:
        job, recipe, (position, site) = run.job, run.job.recipe, run.job.headline
        inputs = ExperimentInputs(
            dataset=run.name,
            items=run.items_with_log_probs,
            used=run.used,
            states=lambda: run["clean-states"][position, site],
            cut_states=lambda: run["cut-states"],
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
            directions=run.directions_of,
            device=job.fit_device,
            progress=job.progress,
            sources=lambda: run.made("source-terms"),
            band=run.headline_band,
        )
        return experiment.run(inputs)

    return run_experiment
