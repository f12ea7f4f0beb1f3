"""Before a run: choices that depend on the machine or the folder, and the questions that will be asked."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from anchorscope.answers.choose import LabelCounter, QuestionSample, choose_questions, require_possible
from anchorscope.catalogue import chosen_evidence
from anchorscope.datasets.catalog import BUILT_IN, DatasetSpec, absolute, open_dataset, parse_spec
from anchorscope.datasets.question import parse_columns
from anchorscope.errors import UserError, unknown
from anchorscope.files import make_folder, replacing
from anchorscope.models.embedded import EMBEDDED, cache_dir
from anchorscope.models.sources import is_shape, locate
from anchorscope.plugins import check
from anchorscope.recipe import Recipe

CPU_ITEMS = 120
"""Items of the many-pass experiments, without a GPU."""
_READ_TWICE = 100_000_000  # bytes of a file that is read once to find mistakes, and again by the run


def resolve(recipe: Recipe, elsewhere: bool = False) -> Recipe:
    """The recipe with every choice that depends on the machine or the current folder made.

    `elsewhere`: other machines run the model, so a named device need not be here.
    """
    import torch  # only here: mistakes are reported before it is imported

    from anchorscope.models.loading import checked_device, choose_device, choose_dtype

    _check_choices(recipe)
    device = choose_device(recipe.device)
    if not elsewhere or recipe.device == "auto":
        checked_device(device)
    return recipe.model_copy(
        update={
            "model": _make_absolute(recipe.model),
            "datasets": tuple(absolute(text) for text in recipe.datasets),
            "device": device,
            "evidence_items": recipe.evidence_items or (CPU_ITEMS if device == "cpu" else None),
            "dtype": choose_dtype(recipe.dtype, device),
            "threads": (recipe.threads or torch.get_num_threads()) if device == "cpu" else None,
        }
    )


def check_inputs(recipe: Recipe, model_elsewhere: bool = False, dry: bool = False) -> None:
    """Finds mistakes in model, files and questions without torch.

    A `dry` run reports too few questions itself. Datasets of the hub, and files of more than 100 MB, are left to the
    run.
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
    try:
        return spec.path.stat().st_size <= _READ_TWICE
    except OSError:  # reading it says what is wrong
        return True


def _check_choices(recipe: Recipe) -> None:
    """Refuses random weights that are not asked for, and plug-ins that cannot be used."""
    if is_shape(recipe.model) and not recipe.allow_random_weights:
        raise UserError(
            f"Model {recipe.model!r} has random weights and knows nothing: it is for tests and speed. To run it all "
            f"the same, on answers and labels from your dataset, add --allow-random-weights."
        )
    check(("families", "datasets"), (*recipe.evidence, recipe.grader))


def default_folder(recipe: Recipe) -> Path:
    """Default run folder."""
    names = "-".join(parse_spec(text).name for text in recipe.datasets)
    shape = recipe.model.removeprefix("shape:").replace("/", "-") if is_shape(recipe.model) else ""
    return Path("runs") / f"{shape or Path(recipe.model).resolve().name}-{names}"


def question_files(datasets: Any) -> list[str]:
    """Dataset names for a recipe, from names and from questions in memory, which are written to the cache.

    `datasets` is a list of names, of questions (dicts), of lists and tables; or one table.
    """
    is_table = hasattr(datasets, "columns") or hasattr(datasets, "column_names")
    if is_table or (datasets and all(isinstance(question, Mapping) for question in datasets)):
        datasets = [datasets]
    return [text if isinstance(text, str) else f"file:{_write_questions(text)}" for text in datasets]


def _write_questions(table: Any) -> Path:
    """Questions in memory as a cached file, whose name depends on the questions."""
    if hasattr(table, "to_dicts"):  # polars
        rows = table.to_dicts()
    elif hasattr(table, "to_list"):  # a datasets.Dataset
        rows = table.to_list()
    elif hasattr(table, "to_dict"):  # pandas
        rows = table.to_dict("records")
    else:
        rows = table
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise UserError(
            f"A dataset is a {type(table).__name__}; give a name or a file, a list of dicts, a data frame of polars or "
            f"pandas, or a datasets.Dataset."
        )
    text = "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
    path = cache_dir() / "questions" / hashlib.sha256(text.encode()).hexdigest()[:16] / "questions.jsonl"
    if not path.exists():
        make_folder(path.parent)
        with replacing(path) as half_written:
            half_written.write_text(text, encoding="utf-8")
    return path


def refuse_too_few(recipe: Recipe, asked: Mapping[str, QuestionSample]) -> None:
    """Refuses a run whose questions alone make it impossible."""
    outlooks = {name: LabelCounter(sample.questions).outlook(recipe.balance) for name, sample in asked.items()}
    require_possible(outlooks, recipe.limit)


def with_sources(recipe: Recipe, asked: Sequence[QuestionSample]) -> Recipe:
    """The recipe with the experiment on sources, where questions bring passages or thinking; checks `parts`."""
    questions = [question for sample in asked for question in sample.questions]
    supplied = [question for question in questions if question.thinking or question.model_answer is not None]
    if recipe.thinking and supplied:
        raise UserError(f"--thinking lets the model think; {len(supplied):,} questions bring their thinking or answer.")
    there = {"question", "answer", *["thinking"] * any(question.thinking or recipe.thinking for question in questions)}
    for question in questions:
        numbered = [f"context[{number}]" for number in range(1, len(question.context) + 1)]
        there |= {"context", *(numbered if len(numbered) > 1 else [])} if numbered else set()
    for name in recipe.parts:
        if name not in there:
            raise unknown("source in --parts", name, sorted(there), "No question of these datasets has it.")
    has_sources = recipe.thinking > 0 or any(question.has_sources for question in questions)
    return recipe.model_copy(update={"evidence": chosen_evidence([*recipe.evidence, *["sources"] * has_sources])})


def _make_absolute(model: str) -> str:
    """An absolute path for a folder or file, so that a recipe works from everywhere; names stay names."""
    if model in EMBEDDED or is_shape(model):
        return model
    try:
        return str(Path(model).resolve()) if Path(model).exists() else model
    except OSError:  # a name that no file system takes
        return model


def ask(recipe: Recipe, spec: DatasetSpec, sha256: str | None = None) -> QuestionSample:
    """The questions of one dataset that a recipe asks; `sha256` is the hash that its file must have."""
    reading = open_dataset(
        spec, recipe.on_bad_row, parse_columns(recipe.columns), large=recipe.large_files, sha256=sha256
    )
    asked = choose_questions(reading, recipe.limit, recipe.seed, recipe.yes_no)
    if not is_shape(recipe.model):
        return asked
    usable = [row for row in asked.questions if row.model_answer is not None and row.truthful is not None]
    if not usable:
        raise UserError(
            f"Dataset {spec.name!r} has {len(asked.questions)} questions without model_answer or truthful; a model "
            f"with random weights can answer none: give both columns (the items.parquet of another run has them)."
        )
    return replace(asked, questions=usable, bad=asked.bad + len(asked.questions) - len(usable))
