"""A study as it is written down: models × prompts × seeds on the same datasets, spelled out run by run.

    name = "sizes"
    models = ["OWNER/SMALL", {name = "large", model = "OWNER/LARGE", dtype = "bfloat16"}]
    datasets = ["popqa", "triviaqa"]
    prompts = ["few-shot", "zero-shot"]
    seeds = [0, 1, 2]

    [defaults]
    limit = 2000

`[defaults]` takes every option of a recipe, and a model's own table wins over it. A run is one model with one prompt
and one seed on all the datasets. Runs are in order of their models, so that each model is loaded once. A run is named
after its model, and after prompt and seed where the study lists them.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import tomli_w

from anchorscope.datasets.catalog import absolute
from anchorscope.errors import UserError, shortened, unknown
from anchorscope.files import canonical_hash
from anchorscope.models.embedded import EMBEDDED
from anchorscope.recipe import Recipe, is_plain_text, make_recipe, read_recipe


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and is_plain_text(value)


def _is_list(values: object, *kinds: type) -> bool:
    """Whether a value is a list of these, not empty and without repetition."""
    if (
        not isinstance(values, list)
        or not values
        or not all(type(value) in kinds for value in values)
    ):
        return False
    return len(set(map(repr, values))) == len(values)


_TABLE = 'a name, or a table {name = "…", model = "…"}'
_KEYS: dict[str, tuple[Callable[[object], bool], str]] = {
    "name": (_is_text, "a few words"),
    "models": (
        lambda value: _is_list(value, str, dict),
        f"a list of models, none twice; each is {_TABLE}",
    ),
    "datasets": (
        lambda value: _is_list(value, str),
        'a list of datasets, none twice: "atlas", the path of a file …',
    ),
    "prompts": (
        lambda value: _is_list(value, str),
        "a list of prompts' names, none twice",
    ),
    "seeds": (
        lambda value: _is_list(value, int),
        "a list of whole numbers, none twice",
    ),
    "defaults": (
        lambda value: isinstance(value, dict),
        "a table of options, [defaults]",
    ),
}
"""The keys of a study: what their values must be, in code and in words."""
_AXES = {"prompts": "prompt", "seeds": "seed"}
_LONGEST_NAME = 80  # letters of a model's part in a folder's name


@dataclass(frozen=True)
class StudyRun:
    """One run of a study."""

    name: str
    model: str
    """What the study calls its model."""
    recipe: Recipe
    """With files written out."""

    @property
    def key(self) -> str:
        """Changes with any option."""
        return canonical_hash(self.recipe.model_dump(mode="json"))


@dataclass(frozen=True)
class Study:
    """All runs, in order."""

    name: str
    runs: tuple[StudyRun, ...]
    written: Mapping[str, Any]
    """What its file says, with models and datasets that are files here written out."""

    @property
    def models(self) -> tuple[str, ...]:
        """In order."""
        return tuple(dict.fromkeys(run.model for run in self.runs))

    def with_threads(self, threads: int | None) -> "Study":
        """The study in which every worker of a CPU computes with this number of threads; a model's own number stays."""
        if threads is None:
            return self
        defaults = {**self.written.get("defaults", {}), "threads": threads}
        return make_study({**self.written, "defaults": defaults}, self.name)

    def to_toml(self) -> str:
        """Its file, which works from every folder."""
        return tomli_w.dumps(self.written)


def read_study(path: Path) -> Study:
    """The study in a file, every run checked; one clear line for the first mistake."""
    if path.is_dir():
        raise UserError(
            f"Study {str(path)!r} is a folder, and a .toml file is needed; a study's folder is --out."
        )
    try:
        content = read_recipe(path)
    except UserError as error:
        raise UserError(str(error).replace("Recipe ", "Study ", 1)) from None
    return make_study(content, path.stem)


def make_study(content: Mapping[str, Any], name: str) -> Study:
    """A study from what its file says; `name` is used where it gives none."""
    for key in content:
        if key not in _KEYS:
            hint = (
                f"Options of runs stand under [defaults]: {key} = …"
                if key in Recipe.model_fields
                else ""
            )
            raise unknown("key of a study", key, tuple(_KEYS), hint)
    given = {"name": name, "models": None, "datasets": None, "defaults": {}, **content}
    for key, value in given.items():
        is_right, words = _KEYS[key]
        if not is_right(value):
            raise UserError(
                f"The study's {key!r} is {shortened(value)}; it must be {words}."
            )
    for key in (
        "model",
        *_KEYS,
        *(option for axis, option in _AXES.items() if axis in given),
    ):
        if key in given["defaults"]:
            raise UserError(
                f"The study has {key!r} under [defaults]; list it above the first table, and only there."
            )
    models = _models(given["models"])
    runs = [run for model, own in models.items() for run in _runs_of(model, own, given)]
    tables = [
        {"name": model, **_with_whole_paths(own)} for model, own in models.items()
    ]
    return Study(
        given["name"],
        tuple(runs),
        {**_with_whole_paths(content), "name": given["name"], "models": tables},
    )


def _models(entries: list[Any]) -> dict[str, dict[str, Any]]:
    """The options of every model by its name, which is that of a folder; no two have the same."""
    models: dict[str, dict[str, Any]] = {}
    for entry in entries:
        options = {"model": entry} if isinstance(entry, str) else dict(entry)
        model = options.get("model")
        called = options.pop("name", model)
        name = _folder_name(str(called))
        if not (_is_text(model) and _is_text(called) and name):
            raise UserError(
                f"The study has the model {shortened(entry)}; a model is {_TABLE}."
            )
        if name in models:
            raise UserError(
                f"Two models of the study are called {name!r}: {shortened(models[name]['model'])} and "
                f'{shortened(model)}. Give one a name of its own: {{name = "…", model = {shortened(model)}}}.'
            )
        models[name] = options
    return models


def _runs_of(
    model: str, own: Mapping[str, Any], given: Mapping[str, Any]
) -> list[StudyRun]:
    """Every prompt and seed of one model; one that its own table sets is the only one."""
    axes = [
        [own[option]] if option in own else given.get(axis, [None])
        for axis, option in _AXES.items()
    ]
    runs = []
    for values in product(*axes):
        chosen = {
            option: value
            for option, value in zip(_AXES.values(), values, strict=True)
            if value is not None
        }
        prompt = f"-{chosen['prompt']}" if "prompts" in given else ""
        seed = f"-seed{chosen['seed']}" if "seeds" in given else ""
        try:
            recipe = make_recipe(
                {"datasets": given["datasets"], **given["defaults"], **own, **chosen}
            )
        except UserError as error:
            raise UserError(f"Model {model!r} of the study: {error}") from None
        whole = _with_whole_paths({"model": recipe.model, "datasets": recipe.datasets})
        recipe = recipe.model_copy(
            update={**whole, "datasets": tuple(whole["datasets"])}
        )
        runs.append(StudyRun(model + prompt + seed, model, recipe))
    return runs


def _folder_name(text: str) -> str:
    """A folder's name from a model's: its last part in small letters."""
    last = next(
        (
            part
            for part in reversed(re.split(r"[/\\:]", text.strip()))
            if part.strip(".")
        ),
        "",
    )
    return re.sub(r"[^a-z0-9._]+", "-", last.lower()).strip(".-")[:_LONGEST_NAME]


def _with_whole_paths(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table with the whole paths of models and datasets that are files here; names stay names."""
    whole = dict(table)
    if "datasets" in table:
        whole["datasets"] = [absolute(text) for text in table["datasets"]]
    if "model" in table:
        model = table["model"]
        is_name = (
            model in EMBEDDED or model.startswith("shape:") or not os.path.exists(model)
        )
        whole["model"] = model if is_name else os.path.realpath(model)
    return whole
