"""The main job, told from top to bottom.

questions → answers → truth labels → exact tokens → clean states → probes → interventions → pathways and curves
→ experiments → report

`steps/` lists the steps of one dataset in this order. Each says what it is made from, and is made, or read from
the run folder, when it is asked for: a run that is stopped goes on where it stopped, and one that is asked for more
does only what is new.
"""

import contextlib
import errno
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anchorscope.artefacts.run_folder import RunFolder, open_run
from anchorscope.catalogue import EVIDENCE, chosen_evidence
from anchorscope.cost import choose_random_cuts, dataset_size, run_cost
from anchorscope.datasets.catalog import parse_spec
from anchorscope.errors import Incomplete, TooFewAnswers, UserError, fault_in_words
from anchorscope.execute.choose import Choice
from anchorscope.execute.worker_groups import WorkerGroups, shared
from anchorscope.files import canonical_hash
from anchorscope.models.process_settings import few_collections, threads
from anchorscope.prepare import refuse_too_few, rehearse, resolve, worker_job
from anchorscope.progress import Progress, Silent
from anchorscope.recipe import Recipe, to_toml
from anchorscope.results import DatasetResult, LeftOut, RunFacts, first_chart, publish
from anchorscope.steps.dataset_steps import DatasetSteps
from anchorscope.steps.job import Job
from anchorscope.steps.planned import first_plan, planned_steps


def run_recipe(
    recipe: Recipe,
    out: Path,
    *,
    loaded: tuple[Any, Any] | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
    choice: Choice | None = None,
    groups: WorkerGroups | None = None,
) -> Path:
    """Runs a recipe into a folder, or goes on with it; `loaded` is a (model, tokenizer) that is already in memory.

    `choice` says who runs passes, this process where it is not given; `groups` are workers that several runs share.
    """
    began, listener, chosen = time.monotonic(), progress or Silent(), choice or Choice()
    if loaded is not None and not chosen.is_local:
        raise UserError("A model that is in memory runs in this process; leave the executor out, or name the model.")
    asked, recipe = recipe, resolve(recipe, elsewhere=chosen.kind == "ray")
    if fresh:
        rehearse(recipe, loaded is not None, listener)
    with (
        room_may_run_out(chosen),
        open_run(out, listener) as folder,
        few_collections(),
        shared(groups) as known,
        contextlib.ExitStack() as held,
    ):
        if fresh:
            folder.forget_steps()
        recipe = _with_what_is_there(folder, recipe)
        if not fresh:
            recipe = _as_begun(folder, recipe, asked)
        held.enter_context(threads(recipe.threads))
        workers = None if chosen.is_local else known.of(chosen, worker_job(recipe), listener.note)
        job = Job(folder, recipe, loaded, listener, workers, chosen.mixed, first_chart(folder, recipe))
        datasets = [DatasetSteps(job, parse_spec(text)) for text in recipe.datasets]
        refuse_too_few(recipe, {one.name: one.asked for one in datasets})  # all files are read before anything slow
        for one in datasets:
            one.questions.value  # noqa: B018 - and what was read is kept
        sizes = [dataset_size(one.questions.value.questions, recipe) for one in datasets]
        if recipe.random_cuts is None:
            job.recipe = recipe = choose_random_cuts(recipe, job.model_size, sizes)
        folder.write_recipe(to_toml(recipe))
        if not any(name.endswith("/answers") for name in folder.steps):  # it begins: nothing is loaded yet
            listener.note(run_cost(recipe, job.model_size, sizes, asked).sentence)
        listener.plan(first_plan(datasets))
        template = [job.template.key] if recipe.keep else []
        key = canonical_hash([recipe.model_dump(mode="json"), [one.result_key for one in datasets], *template])
        if not folder.is_published(key):
            listener.plan(planned_steps(datasets))
            results, left_out = _results(datasets)
            inputs = {one.name: one.source.key for one in datasets if one.spec.path is not None}
            text = job.template.value if recipe.keep else None
            facts = RunFacts(
                job.record.identity,
                recipe,
                inputs,
                job.batch_tokens,
                time.monotonic() - began,
                text,
                job.record.files,
                asdict(job.record.numerics),
                None if workers is None else workers.counts(),
            )
            publish(folder, facts, results, left_out, key, listener)
    return out


@contextlib.contextmanager
def room_may_run_out(choice: Choice) -> Iterator[None]:
    """A disk that is full ends a run on many workers as any other want of means: what is done is kept."""
    try:
        yield
    except OSError as error:
        if choice.is_local or error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        told = fault_in_words(error)
        raise Incomplete(f"{told} What is done is kept; the same command goes on.") from error


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


def _results(datasets: Sequence[DatasetSteps]) -> tuple[list[DatasetResult], list[LeftOut]]:
    """Every dataset in turn; one with too few answers of either kind does not keep the others from their chart."""
    results, left_out, told = [], [], []
    for one in datasets:
        try:
            results.append(one.result())
        except TooFewAnswers as error:
            left_out.append(one.left_out(str(error)))
            told.append(error)
    if not results:
        raise told[0]
    return results, left_out
