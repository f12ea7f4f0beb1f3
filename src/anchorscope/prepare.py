"""Before a run: choices that depend on the machine or the folder, and the questions that will be asked."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from anchorscope.answers.choose import (
    LabelCounter,
    QuestionSample,
    choose_questions,
    require_possible,
)
from anchorscope.catalogue import chosen_evidence
from anchorscope.datasets.catalog import (
    BUILT_IN,
    DatasetSpec,
    absolute,
    open_dataset,
    parse_spec,
)
from anchorscope.datasets.question import parse_columns
from anchorscope.errors import UserError, unknown
from anchorscope.models.embedded import EMBEDDED
from anchorscope.models.sources import is_shape, locate
from anchorscope.plugins import check
from anchorscope.recipe import Recipe

_READ_TWICE = 100_000_000  # bytes of a file that is read once to find mistakes, and again by the run


def resolve(recipe: Recipe, elsewhere: bool = False) -> Recipe:
    """The recipe with all choices made that depend on machine and folder; `elsewhere`: other machines run the model."""
    import torch  # only here: mistakes are reported before it is imported

    from anchorscope.models.loading import checked_device, choose_device, choose_dtype

    _check_choices(recipe)
    device, is_path = (
        choose_device(recipe.device),
        recipe.model not in EMBEDDED and os.path.exists(recipe.model),
    )
    if not elsewhere or recipe.device == "auto":
        checked_device(device)
    return recipe.model_copy(
        update={
            "model": str(Path(recipe.model).resolve())
            if is_path
            else recipe.model,  # a recipe works from everywhere
            "datasets": tuple(absolute(text) for text in recipe.datasets),
            "device": device,
            "evidence_items": recipe.evidence_items
            or (120 if device == "cpu" else None),
            "dtype": choose_dtype(recipe.dtype, device),
            "threads": (recipe.threads or torch.get_num_threads())
            if device == "cpu"
            else None,
        }
    )


def check_inputs(
    recipe: Recipe, model_elsewhere: bool = False, dry: bool = False
) -> None:
    """Finds mistakes in model, files and questions without torch; a `dry` run reports too few questions itself.

    Datasets of the hub, and files of more than 100 MB, are left to the run.
    """
    _check_choices(recipe)
    specs = [parse_spec(text) for text in recipe.datasets]
    asked = {spec.name: ask(recipe, spec) for spec in specs if _is_read_at_once(spec)}
    if not model_elsewhere and not is_shape(recipe.model):
        locate(recipe.model)
    if len(asked) == len(specs) and not dry:
        refuse_too_few(recipe, asked)


def _is_read_at_once(spec: DatasetSpec) -> bool:
    if spec.path is None:
        return spec.name in BUILT_IN
    return not os.path.isfile(spec.path) or os.path.getsize(spec.path) <= _READ_TWICE


def _check_choices(recipe: Recipe) -> None:
    """Refuses random weights that are not asked for, and plug-ins that cannot be used."""
    if is_shape(recipe.model) and not recipe.allow_random_weights:
        raise UserError(
            f"Model {recipe.model!r} has random weights and knows nothing: it is for tests and speed. To run it all "
            f"the same, on answers and labels from your dataset, add --allow-random-weights."
        )
    check(("families", "datasets"), (*recipe.evidence, recipe.grader))


def default_folder(recipe: Recipe) -> Path:
    names = "-".join(parse_spec(text).name for text in recipe.datasets)
    shape = (
        recipe.model.removeprefix("shape:").replace("/", "-")
        if is_shape(recipe.model)
        else ""
    )
    return Path("runs") / f"{shape or Path(recipe.model).resolve().name}-{names}"


def refuse_too_few(recipe: Recipe, asked: Mapping[str, QuestionSample]) -> None:
    """Refuses a run whose questions alone make it impossible."""
    outlooks = {
        name: LabelCounter(sample.questions).outlook(recipe.balance)
        for name, sample in asked.items()
    }
    require_possible(outlooks, recipe.limit)


def with_sources(recipe: Recipe, asked: Sequence[QuestionSample]) -> Recipe:
    """The recipe with the experiment on sources, where questions bring passages or thinking; checks `parts`."""
    questions = [question for sample in asked for question in sample.questions]
    supplied = [
        question
        for question in questions
        if question.thinking or question.model_answer is not None
    ]
    if recipe.thinking and supplied:
        raise UserError(
            f"--thinking lets the model think; {len(supplied):,} questions bring their thinking or answer."
        )
    passages = max((len(question.context) for question in questions), default=0)
    names = ["question", "answer", *["context"][:passages]]
    names += [f"context[{number}]" for number in range(1, passages + 1) if passages > 1]
    names += ["thinking"] * any(
        question.thinking or recipe.thinking for question in questions
    )
    for name in recipe.parts:
        if name not in names:
            raise unknown(
                "source in --parts",
                name,
                names,
                "No question of these datasets has it.",
            )
    has_sources = recipe.thinking > 0 or any(
        question.has_sources for question in questions
    )
    return recipe.model_copy(
        update={
            "evidence": chosen_evidence([*recipe.evidence, *["sources"] * has_sources])
        }
    )


def ask(recipe: Recipe, spec: DatasetSpec, sha256: str | None = None) -> QuestionSample:
    """The questions of one dataset that a recipe asks; `sha256` is the hash that its file must have."""
    reading = open_dataset(
        spec,
        recipe.on_bad_row,
        parse_columns(recipe.columns),
        large=recipe.large_files,
        sha256=sha256,
    )
    asked = choose_questions(reading, recipe.limit, recipe.seed, recipe.yes_no)
    if not is_shape(recipe.model):
        return asked
    usable = [
        row
        for row in asked.questions
        if row.model_answer is not None and row.truthful is not None
    ]
    if not usable:
        raise UserError(
            f"Dataset {spec.name!r} has {len(asked.questions)} questions without model_answer or truthful; a model "
            f"with random weights can answer none: give both columns (the items.parquet of another run has them)."
        )
    return replace(
        asked, questions=usable, bad=asked.bad + len(asked.questions) - len(usable)
    )
