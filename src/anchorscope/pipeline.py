"""The main job, from top to bottom.

questions → answers → truth labels → exact tokens → clean states → probes → interventions → parts of the
evidence → tables → experiments → report

`steps_of` is the table of these steps: what each needs, which options change it, and what makes it (`steps/make.py`). A
step is read from the run folder or made: a run that was stopped resumes, and one that is asked for more does only that.
"""

import contextlib
import time
import tomllib
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from anchorscope.answers.choose import PER_CLASS
from anchorscope.answers.generate import do_not_fit
from anchorscope.answers.label import require_enough
from anchorscope.artefacts.run_folder import RunFolder, open_run
from anchorscope.catalogue import EVIDENCE, KNOCKOUT, chosen_evidence
from anchorscope.cost import REPORT, choose_random_cuts, dataset_size, report_cost, run_cost, step_costs
from anchorscope.datasets.catalog import parse_spec
from anchorscope.errors import TooFewAnswers, UserError
from anchorscope.execute.choose import Choice
from anchorscope.execute.ray_executor import WarmModels, full_disk_is_incomplete
from anchorscope.experiments.experiment import chosen_experiments
from anchorscope.files import canonical_hash
from anchorscope.interventions.cuts import of_experiments
from anchorscope.models.process_settings import few_collections, threads
from anchorscope.plugins import packages_of
from anchorscope.prepare import refuse_too_few, rehearse, resolve, with_sources
from anchorscope.progress import PlannedStep, Progress, Silent
from anchorscope.recipe import Recipe, to_toml
from anchorscope.results import DatasetResult, LeftOut, RunFacts, first_chart, publish
from anchorscope.steps import make
from anchorscope.steps.dataset_run import FILE, MODEL, DatasetRun, Step
from anchorscope.steps.job import FIT_LIBRARIES, MODEL_LIBRARIES, TABLE_LIBRARIES, Job, worker_job

Pass, Fit, Table = (
    partial(Step, libraries=libraries) for libraries in (MODEL_LIBRARIES, FIT_LIBRARIES, TABLE_LIBRARIES)
)
_QUESTIONS = ("columns", "limit", "yes_no", "on_bad_row", "seed", "is_shape")
_LABELS = ("balance", "group_by", "max_per_class", "seed", "grader")
_ITEMS = ("labels", "tokens", MODEL)
_REWRITTEN = (*_ITEMS, "clean-states", "before-answer")
_CUTS = ("edges", "seed", "random_cuts", "positions")
_HEADLINE = ("positions", "headline")
_FITS = ("folds", "seed", "fit_device")
_REDUCED = (*_CUTS, "headline", "directions", "fit_device")
_SAMPLED = ("site", "position", "bootstrap", "seed")
_EVIDENCE = ("evidence-terms", "clean-scores", "null-scores")
_SOURCES = ("clean-states", "before-answer", "clean-scores", "attention-mass", "labels", "tokens", MODEL)
_TABLES = (*_SAMPLED, "fit_device", "model_name")
_EXPERIMENTS = (*_SAMPLED, "edges", "evidence_items", "window", "max_new_tokens", "solver")
_OF_QUESTIONS = ("questions", "answers", "labels", "tokens")  # work on every question; all others on the used items


def steps_of(recipe: Recipe) -> list[Step]:
    """The steps of every dataset, each after those that it needs: name, needs, options, and what makes it."""
    knockout, *others = [_effects(name) for name in recipe.evidence if of_experiments([name])]
    effect_names = [step.name for step in (knockout, *others)]
    controls = {
        "evidence-random-weights": recipe.random_weights,
        "evidence-resample": "patching" in recipe.evidence,
        "evidence-paraphrase": "wordings" in recipe.evidence,
        "source-terms": "sources" in recipe.evidence,
    }
    further = tuple(name for name, is_asked in controls.items() if is_asked)
    formats = packages_of("datasets") if any(parse_spec(text).path for text in recipe.datasets) else ()
    table = [
        Step("questions", (FILE,), _QUESTIONS, make.questions, libraries=formats),
        Pass("answers", ("questions", MODEL), ("prompt", "max_new_tokens"), make.answers, epoch=2),
        Step("labels", ("answers",), _LABELS, make.labels, libraries=packages_of("graders", recipe.grader)),
        Step("tokens", ("answers", "labels"), ("exact_tokens",), make.tokens, epoch=2),
        Pass("clean-states", _ITEMS, ("positions",), make.clean_states, epoch=2, large=True),
        Pass("log-probs", _ITEMS, (), make.log_probs, epoch=2),
        Pass("attention-mass", _ITEMS, ("edges",), make.attention_mass, epoch=2),
        Pass("before-answer", _ITEMS, _HEADLINE, make.before_answer, large=True),
        Fit("probes", ("clean-states", "labels"), _FITS, make.probes, epoch=2),
        Fit("clean-scores", ("clean-states", "probes"), ("fit_device",), make.clean_scores),
        knockout,
        Pass("cut-states", (*_ITEMS, "attention-mass"), (*_CUTS, "cut_places"), make.cut_states, 3, True),
        Pass("principal-states", ("clean-states", "attention-mass"), _REDUCED, make.principal, 3, True),
        *others,
        Fit("evidence-terms", ("principal-states", "before-answer", "labels"), _FITS, make.evidence_terms, epoch=2),
        Fit("refits", ("cut-states", "labels"), (*_FITS, "site", "position"), make.refits, epoch=2),
        Fit("permuted-refits", ("cut-states", "probes"), (*_FITS, "site", "position"), make.permuted_refits),
        Pass("answer-alone", _ITEMS, ("edges", "seed", *_HEADLINE), make.answer_alone, large=True),
        Fit("null-scores", ("before-answer", "answer-alone"), (*_FITS, "directions"), make.null_scores, epoch=3),
        Pass(
            "evidence-random-weights", _ITEMS, ("edges", "directions", *_FITS, *_HEADLINE), make.random_weight_terms, 2
        ),
        Pass("evidence-resample", _REWRITTEN, ("directions", *_FITS, *_HEADLINE), make.resample_terms),
        Pass("evidence-paraphrase", _REWRITTEN, ("directions", *_FITS, *_HEADLINE), make.paraphrase_terms),
        Pass("source-terms", _SOURCES, ("edges", "directions", "parts", *_FITS, *_HEADLINE), make.source_terms),
        Table("evidence-parts", (*_EVIDENCE, *further), _TABLES, make.part_tables, epoch=2),
        Pass("detection-samples", ("labels", MODEL), ("prompt", "max_new_tokens", "seed"), make.samples),
        Pass(
            "detection-columns", ("detection-samples", "attention-mass"), ("edges", "seed"), make.detection_columns, 2
        ),
        Pass("detection-states", ("before-answer", "answer-alone"), ("edges",), make.detection_states, 3, True),
        Table("tables", (*effect_names, "refits", "permuted-refits", "log-probs"), _TABLES, make.tables, epoch=5),
        Fit("final-probes", ("clean-states", "labels"), ("seed", "fit_device"), make.final_probes, epoch=2),
    ]
    optional = {
        **controls,
        "detection-samples": "detection" in recipe.keep,
        "detection-columns": "detection" in recipe.keep,
        "detection-states": "detection" in recipe.keep,
    }
    for experiment in chosen_experiments(recipe.evidence):
        measured = ("source-terms",) if experiment.name == "sources" else ()
        name, needs = f"experiment-{experiment.name}", (f"effects-{KNOCKOUT}", "log-probs", MODEL, *measured)
        libraries = (*TABLE_LIBRARIES, *packages_of("experiments", experiment.name))
        table.append(Step(name, needs, _EXPERIMENTS, make.experiment_of(experiment), epoch=2, libraries=libraries))
    return [step for step in table if optional.get(step.name, True)]


def _effects(experiment: str) -> Step:
    """Log-odds under the interventions of an experiment."""
    registered = of_experiments([experiment])
    options, needs = ["edges", "seed"], [*_ITEMS, "probes", "clean-scores"]
    if any(intervention.many_passes or intervention.rewrite is not None for intervention in registered):
        options.append("evidence_items")
    if any(intervention.repeats for intervention in registered):
        options.append("random_cuts")
    if any(intervention.by_attention for intervention in registered):
        needs.append("attention-mass")
    row = f"effects-{experiment}", tuple(needs), tuple(options)
    if experiment == KNOCKOUT:
        return Pass(*row, make.knockout_effects, epoch=2)
    libraries = (*MODEL_LIBRARIES, *packages_of("interventions", experiment))
    return Step(*row, make.effects_of(experiment), epoch=2, libraries=libraries)


def run_recipe(
    recipe: Recipe,
    out: Path,
    *,
    loaded: tuple[Any, Any] | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
    choice: Choice | None = None,
    warm: WarmModels | None = None,
) -> Path:
    """Runs a recipe into a folder, or resumes it; `loaded` is a (model, tokenizer) that is already in memory.

    `choice` says who runs passes, this process where it is not given; `warm` holds a model that several runs share.
    """
    began, listener, chosen = time.monotonic(), progress or Silent(), choice or Choice()
    if loaded is not None and not chosen.is_local:
        raise UserError("A model that is in memory runs in this process; leave the executor out, or name the model.")
    asked, recipe = recipe, resolve(recipe, elsewhere=chosen.kind == "ray")
    if fresh:
        rehearse(recipe, loaded is not None)
    with (
        contextlib.nullcontext() if chosen.is_local else full_disk_is_incomplete(),
        open_run(out, listener) as folder,
        few_collections(),
        contextlib.closing(WarmModels()) if warm is None else contextlib.nullcontext(warm) as models,
        contextlib.ExitStack() as held,
    ):
        if fresh:
            folder.forget_steps()
        recipe = _with_what_is_there(folder, recipe)
        if not fresh:
            recipe = _as_begun(folder, recipe, asked)
        held.enter_context(threads(recipe.threads))
        workers = None if chosen.is_local else models.workers(chosen, worker_job(recipe), listener.note)
        job = Job(folder, recipe, loaded, listener, workers, models, chosen.mixed, first_chart(folder, recipe))
        held.callback(job.forget_states)
        datasets = [DatasetRun(job, parse_spec(text), steps_of(recipe)) for text in recipe.datasets]
        refuse_too_few(recipe, {run.name: run.asked for run in datasets})  # all files are read before anything slow
        job.recipe = recipe = with_sources(recipe, [run.asked for run in datasets])
        for run in datasets:
            run.steps = {step.name: step for step in steps_of(recipe)}
        sizes = [dataset_size(run["questions"].questions, recipe) for run in datasets]
        if recipe.random_cuts is None:
            job.recipe = recipe = choose_random_cuts(recipe, job.model_size, sizes)
        folder.write_recipe(to_toml(recipe))
        if not any(name.endswith("/answers") for name in folder.steps):  # it begins: nothing is loaded yet
            listener.note(run_cost(recipe, job.model_size, sizes, asked).sentence)
        template = [job.template.key] if recipe.keep else []
        key = canonical_hash([recipe.model_dump(mode="json"), [run.key for run in datasets], *template])
        if not folder.is_published(key):
            listener.plan(_plan(datasets))
            results, left_out = _results(datasets)
            counts = None if workers is None else workers.counts(sum(len(result.items) for result in results))
            facts = RunFacts(
                job.record.identity,
                recipe,
                {run.name: run.source.key for run in datasets if run.spec.path is not None},
                job.batch_tokens,
                time.monotonic() - began,
                job.template.value if recipe.keep else None,
                job.record.files,
                asdict(job.record.numerics),
                counts,
            )
            publish(folder, facts, results, left_out, key, listener, job.fits)
            if counts is not None:
                listener.note(
                    f"{counts['coordinator_bytes_per_item'] / 1e3:,.1f} kB per item went through this process, "
                    f"{counts['coordinator_bytes'] / max(1, counts['states_bytes']):.1%} of the states' bytes "
                    f"({counts['states_bytes'] / 1e6:,.1f} MB, which stayed in files)"
                )
    return out


def _results(datasets: Sequence[DatasetRun]) -> tuple[list[DatasetResult], list[LeftOut]]:
    """Makes every step that is missing, in the order of the table, dataset by dataset; one with too few answers of
    either kind does not keep the others from their chart."""
    results, left_out, refusals = [], [], []
    for run in datasets:
        try:
            too_long = do_not_fit(run["answers"], run.job.planner.context)
            require_enough(run.name, run["labels"], PER_CLASS, run.job.recipe.balance, too_long)
        except TooFewAnswers as error:
            left_out.append(make.left_out(run, str(error)))
            refusals.append(error)
            continue
        missing = run.missing()
        if any(step.name == "probes" for step in missing):
            run.splits  # noqa: B018 - too few groups are refused before anything slow
        if any(step.large for step in missing):
            run.check_room()
        needed = {need for step in missing if not step.large for need in step.needs}
        for step in missing:
            if not step.large or step.name in needed:  # other large ones are read from the states that the run keeps
                run[step.name]
        results.append(make.dataset_result(run))
        run.forget_values()
    if not results:
        raise refusals[0]
    return results, left_out


def _plan(datasets: Sequence[DatasetRun]) -> list[PlannedStep]:
    """Every step of the run and its cost, with what it took where it is there already."""
    plan = []
    for run in datasets:
        job, missing = run.job, {step.name for step in run.missing()}
        costs = step_costs(job.recipe, job.model_size, dataset_size(run["questions"].questions, job.recipe))
        for name in run.steps:
            if name in missing or run.is_kept(name):
                kind, seconds = name in _OF_QUESTIONS, None if name in missing else run.result(name).seconds
                cost = 0.0 if name == "questions" else costs.get(name)
                plan.append(PlannedStep(f"{run.name}/{name}", "answers" if kind else "items", cost, seconds))
    return [*plan, PlannedStep(REPORT, "items", report_cost(datasets[0].job.recipe))]


def _with_what_is_there(folder: RunFolder, recipe: Recipe) -> Recipe:
    """A run that is gone on with keeps the experiments that it has made."""
    made = {name.partition("/")[2].removeprefix("effects-").removeprefix("experiment-") for name in folder.steps}
    kept = chosen_evidence([*recipe.evidence, *(name for name in EVIDENCE if name in made)])
    more = [name for name in kept if name not in recipe.evidence]
    if more:
        folder.tell(f"experiments that are there already are kept: {', '.join(more)}")
    return recipe.model_copy(update={"evidence": kept})


def _as_begun(folder: RunFolder, recipe: Recipe, asked: Recipe) -> Recipe:
    """A resumed run has the threads and random cuts that it was begun with, unless others are asked for."""
    try:
        begun = tomllib.loads(folder.notes.get("recipe", ""))
    except (tomllib.TOMLDecodeError, TypeError):
        return recipe
    cuts, number = begun.get("random_cuts"), begun.get("threads")
    if asked.random_cuts is None and isinstance(cuts, int) and 1 <= cuts <= 1_000:
        recipe = recipe.model_copy(update={"random_cuts": cuts})
    if asked.threads is not None or recipe.threads in (None, number):
        return recipe
    if not isinstance(number, int) or not 1 <= number <= 1024:
        return recipe
    folder.tell(f"{number} threads are used, as the run was begun with (--threads chooses others)")
    return recipe.model_copy(update={"threads": number})
