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
from functools import partial
from pathlib import Path
from typing import Any

from anchorscope.answers.choose import PER_CLASS
from anchorscope.answers.generate import do_not_fit
from anchorscope.answers.label import require_enough
from anchorscope.artefacts.run_folder import RunFolder, open_run
from anchorscope.catalogue import EVIDENCE, KNOCKOUT, chosen_evidence
from anchorscope.cost import (
    REPORT,
    USUAL_FIT_SEEDS,
    DatasetSize,
    choose_random_cuts,
    dataset_size,
    report_cost,
    run_cost,
    step_costs,
)
from anchorscope.datasets.catalog import parse_spec
from anchorscope.errors import TooFewAnswers, UserError
from anchorscope.execute.choose import Choice
from anchorscope.execute.executor import LocalExecutor
from anchorscope.execute.ray_executor import (
    WarmModels,
    WorkerJob,
    full_disk_is_incomplete,
)
from anchorscope.experiments.experiment import Experiment, chosen_experiments
from anchorscope.files import canonical_hash
from anchorscope.interventions.cuts import of_experiments
from anchorscope.models.process_settings import few_collections, threads
from anchorscope.models.wrapping import wrap
from anchorscope.plugins import packages_of
from anchorscope.prepare import refuse_too_few, resolve, with_sources
from anchorscope.progress import PlannedStep, Progress, Silent
from anchorscope.recipe import Recipe, make_recipe, options_in, to_toml
from anchorscope.results import DatasetResult, dataset_result, publish, without_results
from anchorscope.steps import make
from anchorscope.steps.job import FILE, MODEL, MODEL_LIBRARIES, DatasetRun, Job, Step

_TABLE_LIBRARIES = (*MODEL_LIBRARIES, "numpy", "scipy")
Pass, Fit, Table = (
    partial(Step, libraries=names)
    for names in (MODEL_LIBRARIES, ("torch",), _TABLE_LIBRARIES)
)
_QUESTIONS = ("columns", "limit", "yes_no", "on_bad_row", "seed", "is_shape")
_LABELS = ("balance", "group_by", "max_per_class", "seed", "grader")
_ITEMS = ("labels", "tokens", MODEL)
_REWRITTEN = (*_ITEMS, "clean-states", "before-answer")
_CUTS = ("edges", "seed", "random_cuts", "positions")
_HEADLINE = ("positions", "headline")
_FITS = ("folds", "seed", "fit_device")
_REDUCED = (*_CUTS, "headline", "directions", "fit_device")
_VIEWS = ("directions", *_FITS, *_HEADLINE)
_SAMPLED = ("site", "position", "bootstrap", "seed")
_EVIDENCE = ("evidence-terms", "clean-scores", "null-scores")
_SOURCES = (
    "clean-states",
    "before-answer",
    "clean-scores",
    "attention-mass",
    "labels",
    "tokens",
    MODEL,
)
_TABLES = (*_SAMPLED, "fit_device", "model_name")
_EXPERIMENTS = (
    *_SAMPLED,
    "edges",
    "evidence_items",
    "directions",
    "window",
    "max_new_tokens",
    "fit_device",
)
# These work on every question; all others on the used items.
_OF_QUESTIONS = ("questions", "thinking", "answers", "labels", "tokens")


def steps_of(recipe: Recipe) -> list[Step]:
    """The steps of every dataset, each after those that it needs: name, needs, options, and what makes it."""
    knockout, *others = [
        _effects(name) for name in recipe.evidence if of_experiments([name])
    ]
    controls = {
        "evidence-random-weights": recipe.random_weights,
        "evidence-resample": "patching" in recipe.evidence,
        "evidence-paraphrase": "wordings" in recipe.evidence,
        "source-terms": "sources" in recipe.evidence,
        "thinking": recipe.thinking > 0,
    }
    measured = (*_EVIDENCE, *(name for name, is_asked in controls.items() if is_asked))
    tabled = (
        *(step.name for step in (knockout, *others)),
        "refits",
        "permuted-refits",
        "log-probs",
    )
    asked = "thinking" if recipe.thinking else "questions"
    formats = (
        packages_of("datasets")
        if any(parse_spec(text).path for text in recipe.datasets)
        else ()
    )
    table = [
        Step("questions", (FILE,), _QUESTIONS, make.questions, libraries=formats),
        Pass("thinking", ("questions", MODEL), ("prompt", "thinking"), make.thinking),
        Pass(
            "answers",
            (asked, MODEL),
            ("prompt", "max_new_tokens"),
            make.answers,
            epoch=2,
        ),
        Step(
            "labels",
            ("answers",),
            _LABELS,
            make.labels,
            libraries=packages_of("graders", recipe.grader),
            epoch=2,
        ),
        Step("tokens", ("answers", "labels"), ("exact_tokens",), make.tokens, epoch=2),
        Pass(
            "clean-states",
            _ITEMS,
            ("positions",),
            make.clean_states,
            epoch=3,
            large=True,
        ),
        Pass("log-probs", _ITEMS, (), make.log_probs, epoch=2),
        Pass("attention-mass", _ITEMS, ("edges",), make.attention_mass, epoch=2),
        Pass(
            "before-answer", _ITEMS, _HEADLINE, make.before_answer, epoch=2, large=True
        ),
        Fit("probes", ("clean-states", "labels"), _FITS, make.probes, epoch=3),
        Fit(
            "clean-scores",
            ("clean-states", "probes"),
            ("fit_device",),
            make.clean_scores,
            epoch=2,
        ),
        knockout,
        Pass(
            "cut-states",
            (*_ITEMS, "attention-mass"),
            ("edges", "seed", *_HEADLINE),
            make.cut_states,
            epoch=5,
            large=True,
        ),
        Pass(
            "principal-states",
            ("clean-states", "attention-mass"),
            _REDUCED,
            make.principal,
            epoch=3,
            large=True,
        ),
        *others,
        Fit(
            "evidence-terms",
            ("principal-states", "before-answer", "labels"),
            _FITS,
            make.evidence_terms,
            epoch=2,
        ),
        Fit(
            "refits",
            ("cut-states", "labels"),
            (*_FITS, "site", "position"),
            make.refits,
            epoch=2,
        ),
        Fit(
            "permuted-refits",
            ("cut-states", "probes"),
            (*_FITS, "site", "position"),
            make.permuted_refits,
        ),
        Pass(
            "answer-alone",
            _ITEMS,
            ("edges", "seed", *_HEADLINE),
            make.answer_alone,
            epoch=2,
            large=True,
        ),
        Fit(
            "null-scores",
            ("before-answer", "answer-alone"),
            (*_FITS, "directions"),
            make.null_scores,
            epoch=3,
        ),
        Pass(
            "evidence-random-weights",
            _ITEMS,
            ("edges", *_VIEWS),
            make.random_weight_terms,
            epoch=3,
        ),
        Pass("evidence-resample", _REWRITTEN, _VIEWS, make.resample_terms),
        Pass("evidence-paraphrase", _REWRITTEN, _VIEWS, make.paraphrase_terms),
        Pass(
            "source-terms",
            _SOURCES,
            ("edges", "parts", *_VIEWS),
            make.source_terms,
            epoch=2,
        ),
        Table("evidence-parts", measured, _TABLES, make.evidence_parts, epoch=2),
        Pass(
            "detection-samples",
            ("labels", MODEL),
            ("prompt", "max_new_tokens", "seed"),
            make.samples,
            epoch=2,
        ),
        Pass(
            "detection-columns",
            ("detection-samples",),
            (),
            make.detection_columns,
            epoch=6,
        ),
        Pass(
            "detection-states",
            ("answer-alone",),
            ("edges",),
            make.detection_states,
            epoch=4,
            large=True,
        ),
        Table("tables", tabled, _TABLES, make.tables, epoch=6),
        *(
            _experiment(experiment)
            for experiment in chosen_experiments(recipe.evidence)
        ),
    ]
    is_kept = "detection" in recipe.keep
    return [
        step
        for step in table
        if controls.get(step.name, is_kept or not step.name.startswith("detection-"))
    ]


def _effects(experiment: str) -> Step:
    """Log-odds under the interventions of an experiment."""
    registered = of_experiments([experiment])
    options, needs = ["edges", "seed"], [*_ITEMS, "probes", "clean-scores"]
    if any(
        intervention.many_passes or intervention.rewrite is not None
        for intervention in registered
    ):
        options.append("evidence_items")
    if any(intervention.repeats for intervention in registered):
        options.append("random_cuts")
    if any(intervention.by_attention for intervention in registered):
        needs.append("attention-mass")
    libraries = (*MODEL_LIBRARIES, *packages_of("interventions", experiment))
    made = make.effects_of(experiment)
    return Step(
        f"effects-{experiment}",
        tuple(needs),
        tuple(options),
        made,
        epoch=3,
        libraries=libraries,
    )


def _experiment(experiment: Experiment) -> Step:
    """What an experiment beyond interventions finds."""
    measured = ("source-terms",) if experiment.name == "sources" else ()
    name, needs = (
        f"experiment-{experiment.name}",
        (f"effects-{KNOCKOUT}", "log-probs", MODEL, *measured),
    )
    libraries = (*_TABLE_LIBRARIES, *packages_of("experiments", experiment.name))
    return Step(
        name,
        needs,
        _EXPERIMENTS,
        make.experiment_of(experiment),
        epoch=3,
        libraries=libraries,
    )


def run_recipe(
    recipe: Recipe,
    out: Path,
    *,
    loaded: tuple[Any, Any] | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
    choice: Choice | None = None,
    warm: WarmModels | None = None,
    for_detectors: bool = False,
    fit_seeds: int | None = None,
) -> Path:
    """Runs a recipe into a folder, or resumes it; `loaded` is a (model, tokenizer) that is already in memory.

    `choice` says who runs passes, this process where it is not given; `warm` holds a model that several runs share.
    `for_detectors`: only what detectors read is made, unless the folder has all results; a later call makes the rest.
    `fit_seeds` are the fold seeds of detectors that are fitted next, for the cost; the usual ones if none are named.
    """
    began, listener, chosen = time.monotonic(), progress or Silent(), choice or Choice()
    if loaded is not None and not chosen.is_local:
        raise UserError(
            "A model that is in memory runs in this process; leave the executor out, or name the model."
        )
    asked, recipe = recipe, resolve(recipe, elsewhere=not chosen.is_local)
    with (
        contextlib.nullcontext() if chosen.is_local else full_disk_is_incomplete(),
        open_run(out, listener) as folder,
        few_collections(),
        contextlib.closing(WarmModels())
        if warm is None
        else contextlib.nullcontext(warm) as models,
        contextlib.ExitStack() as held,
    ):
        # What is run: the recipe as this folder was begun with, who runs it, and every question, read before all else.
        if not fresh:
            recipe = _with_earlier_choices(folder, recipe, asked)
        held.enter_context(threads(recipe.threads))
        if loaded is None:
            options = (
                recipe.model,
                recipe.dtype,
                recipe.device,
                recipe.trust_remote_code,
                recipe.threads or 0,
            )
            executor = models.executor(chosen, WorkerJob(*options), listener)
        else:
            executor = LocalExecutor(lambda: wrap(*loaded))
        if fit_seeds is None:
            fit_seeds = USUAL_FIT_SEEDS if for_detectors else 0
        for_detectors = for_detectors and "summary.csv" not in folder.results
        job = Job(folder, recipe, executor, listener, loaded is not None, for_detectors)
        held.callback(executor.forget_states)
        datasets = [
            DatasetRun(job, parse_spec(text), steps_of(recipe))
            for text in recipe.datasets
        ]
        refuse_too_few(recipe, {run.name: run.asked for run in datasets})
        job.recipe = recipe = with_sources(recipe, [run.asked for run in datasets])
        for run in datasets:
            run.steps = {step.name: step for step in steps_of(recipe)}
        sizes = [dataset_size(run.asked.questions, recipe) for run in datasets]
        job.recipe = recipe = choose_random_cuts(recipe, job.model_size, sizes)
        # no mistake of the user's is left that could cost an earlier run its steps
        if fresh:
            folder.forget_steps()
            job.forget_results()
            for run in datasets:
                run.forget_values()
        folder.write_recipe(to_toml(recipe))
        is_new = not any(name.endswith("/answers") for name in folder.steps)
        if is_new:  # nothing is loaded yet
            listener.note(_cost_of_missing(datasets, sizes, asked, fit_seeds))
        key = canonical_hash(
            [recipe.model_dump(mode="json"), [run.key for run in datasets]]
        )
        if folder.is_published(key):
            return out
        if not is_new:
            listener.note(_cost_of_missing(datasets, sizes, asked, fit_seeds))

        # The run: every step that is missing, in the order of the table, dataset by dataset.
        listener.plan(_plan(datasets))
        results: list[DatasetResult] = []
        left_out: dict[TooFewAnswers, DatasetResult] = {}
        for run in datasets:
            try:
                answers, labels = (
                    run.result("answers").value,
                    run.result("labels").value,
                )
                require_enough(
                    run.name,
                    labels,
                    PER_CLASS,
                    recipe.balance,
                    do_not_fit(answers, job.planner.context),
                )
                steps = run.steps_to_make()
            # it does not keep the others from their chart
            except TooFewAnswers as error:
                left_out[error] = without_results(run)
                listener.note(f"not measured: {error}")
                continue
            for step in steps:
                run.result(step.name).value  # noqa: B018 - it is made
            if recipe.keep and executor.is_local:
                run.forget_values()  # kept states are then mapped from their files until all datasets are done
            results.append(dataset_result(run))
            run.forget_values()
        if not results:
            raise TooFewAnswers(" ".join(map(str, left_out)))

        # The results, all at once.
        publish(job, datasets, results, left_out, key, began)
    return out


def _cost_of_missing(
    datasets: Sequence[DatasetRun],
    sizes: Sequence[DatasetSize],
    asked: Recipe,
    fit_seeds: int,
) -> str:
    """What the steps that are missing cost, and detectors after them, in one sentence."""
    job = datasets[0].job
    steps = {step.name for run in datasets for step in run.missing()}
    cost = run_cost(
        job.recipe, job.model_size, sizes, asked, steps=steps, fit_seeds=fit_seeds
    )
    return cost.sentence


def _plan(datasets: Sequence[DatasetRun]) -> list[PlannedStep]:
    """Every step of the run and its cost, with what it took where it is there already."""
    plan = []
    for run in datasets:
        job, missing = run.job, {step.name for step in run.missing()}
        costs = step_costs(
            job.recipe,
            job.model_size,
            dataset_size(run["questions"].questions, job.recipe),
        )
        for name in run.steps:
            if name in missing or run.is_kept(name):
                kind, seconds = (
                    name in _OF_QUESTIONS,
                    None if name in missing else run.result(name).seconds,
                )
                cost = 0.0 if name == "questions" else costs.get(name)
                plan.append(
                    PlannedStep(
                        f"{run.name}/{name}",
                        "answers" if kind else "items",
                        cost,
                        seconds,
                    )
                )
    return [
        *plan,
        PlannedStep(
            REPORT, "items", report_cost(job.recipe, has_page=not job.for_detectors)
        ),
    ]


def _with_earlier_choices(folder: RunFolder, recipe: Recipe, asked: Recipe) -> Recipe:
    """A resumed run keeps the experiments that it has made, and the threads and random cuts that it was begun with,
    unless others are asked for."""
    made = {
        name.partition("/")[2].removeprefix("effects-").removeprefix("experiment-")
        for name in folder.steps
    }
    evidence = chosen_evidence(
        [*recipe.evidence, *(name for name in EVIDENCE if name in made)]
    )
    more = [name for name in evidence if name not in recipe.evidence]
    if more:
        folder.tell(f"experiments that are there already are kept: {', '.join(more)}")
    earlier: dict[str, Any] = {"evidence": evidence}
    with contextlib.suppress(tomllib.TOMLDecodeError, TypeError, UserError):
        begun = make_recipe(options_in(folder.notes.get("recipe", "")))
        if asked.random_cuts is None:
            earlier["random_cuts"] = begun.random_cuts
        if (
            asked.threads is None
            and recipe.threads is not None
            and begun.threads not in (None, recipe.threads)
        ):
            folder.tell(
                f"{begun.threads} threads are used, as the run was begun with (--threads chooses others)"
            )
            earlier["threads"] = begun.threads
    return recipe.model_copy(update=earlier)
