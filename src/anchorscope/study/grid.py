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

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import tomli_w

from anchorscope.datasets.catalog import absolute
from anchorscope.errors import UserError, unknown
from anchorscope.files import canonical_hash
from anchorscope.models.embedded import EMBEDDED
from anchorscope.recipe import Recipe, is_plain_text, make_recipe, read_recipe, shortened

MOST_RUNS = 10_000
"""Runs of one study: more than anybody will wait for."""
_ENTRIES: dict[str, tuple[type | tuple[type, ...], str]] = {
    "models": ((str, dict), 'an entry is a model\'s name, or a table {name = "…", model = "…"}'),
    "datasets": (str, 'an entry is a dataset like "atlas" or the path of a file'),
    "prompts": (str, "an entry is the name of a prompt"),
    "seeds": (int, "an entry is a whole number"),
}
"""The lists of a study: what they hold, in code and in words."""
_AXES = {"prompts": "prompt", "seeds": "seed"}
_LONGEST_NAME = 80  # letters of a model's part in a folder's name


@dataclass(frozen=True)
class StudyRun:
    """One run of a study."""

    name: str
    """Of its folder."""
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
        raise UserError(f"Study {str(path)!r} is a folder, and a .toml file is needed; a study's folder is --out.")
    try:
        content = read_recipe(path)
    except UserError as error:
        line = str(error).replace("Recipe ", "Study ", 1).replace("a TOML file of options", "a TOML file of a study")
        raise UserError(line.replace(", or leave it out and use options", " with models and datasets")) from None
    return make_study(content, path.stem)


def make_study(content: Mapping[str, Any], name: str) -> Study:
    """A study from what its file says; `name` is used where it gives none."""
    allowed = ("name", *_ENTRIES, "defaults")
    for key in content:
        if key not in allowed:
            hint = f"Options of runs stand under [defaults]: {key} = …" if key in Recipe.model_fields else ""
            raise unknown("key of a study", key, allowed, hint)
    name, defaults = content.get("name", name), content.get("defaults", {})
    if not isinstance(name, str) or not name.strip() or not is_plain_text(name):
        raise UserError(f"The study's 'name' is {shortened(name)}; it must be a few words.")
    if not isinstance(defaults, dict):
        raise UserError(f"The study's 'defaults' is {shortened(defaults)}; it must be a table of options, [defaults].")
    for key in ("model", *_ENTRIES):
        if key in defaults:
            listed = "models" if key == "model" else key
            raise UserError(f"The study has {key!r} under [defaults]; write {listed} = [...] above the first table.")
    lists = {key: _list_of(content, key) for key in _ENTRIES}
    models = _models(lists["models"])
    n_runs = len(models) * math.prod(max(1, len(lists[key])) for key in _AXES)
    if n_runs > MOST_RUNS:
        raise UserError(f"The study has {n_runs:,} runs; {MOST_RUNS:,} at most. Make several studies of it.")
    shared = {"datasets": lists["datasets"], **defaults}
    runs = tuple(run for model, own in models.items() for run in _runs_of(model, own, shared, lists))
    tables = [{"name": model, **_with_whole_paths(own)} for model, own in models.items()]
    return Study(name, runs, {**_with_whole_paths(content), "name": name, "models": tables})


def _list_of(content: Mapping[str, Any], key: str) -> list[Any]:
    """A list of the study, none of it twice; prompts and seeds may be left out."""
    if key in _AXES and key not in content:
        return []
    values, (kind, words) = content.get(key), _ENTRIES[key]
    if not isinstance(values, list) or not values:
        what = "has no" if values is None else f"says {shortened(values)} for"
        raise UserError(f"The study {what} {key!r}; it must be a list with at least one entry, {key} = [...].")
    seen: set[str] = set()
    for value in values:
        if not isinstance(value, kind) or isinstance(value, bool):
            raise UserError(f"The study has {shortened(value)} among its {key}; {words}.")
        if repr(value) in seen:
            raise UserError(f"The study lists {shortened(value)} twice among its {key}; leave one out.")
        seen.add(repr(value))
    return values


def _models(entries: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """The options of every model by its name, which is that of a folder; no two have the same."""
    models: dict[str, dict[str, Any]] = {}
    for entry in entries:
        options = {"model": entry} if isinstance(entry, str) else dict(entry)
        model, given = options.get("model"), options.pop("name", None)
        texts = [model] if given is None else [model, given]
        name = _folder_name(str(texts[-1]))
        if not all(isinstance(text, str) and text.strip() and is_plain_text(text) for text in texts) or not name:
            raise UserError(f"The study has the model {shortened(entry)}; {_ENTRIES['models'][1]}.")
        if name in models:
            raise UserError(
                f"Two models of the study are called {name!r}: {shortened(models[name]['model'])} and "
                f'{shortened(model)}. Give one a name of its own: {{name = "…", model = {shortened(model)}}}.'
            )
        models[name] = options
    return models


def _runs_of(
    model: str, own: Mapping[str, Any], shared: Mapping[str, Any], lists: Mapping[str, list[Any]]
) -> list[StudyRun]:
    """Every prompt and seed of one model; one that its own table sets is the only one."""
    axes: list[list[dict[str, Any]]] = []
    for key, option in _AXES.items():
        if lists[key] and option in shared:
            raise UserError(f"The study has both {key} = [...] and {option!r} under [defaults]; leave one of them out.")
        values = [own[option]] if option in own else lists[key]
        axes.append([{option: value} for value in values] or [{}])
    runs = []
    for prompt, seed in product(*axes):
        chosen = {**prompt, **seed}
        parts = [f"-{chosen['prompt']}" if lists["prompts"] else "", f"-seed{chosen['seed']}" if lists["seeds"] else ""]
        try:
            recipe = make_recipe({**shared, **own, **chosen})
        except UserError as error:
            raise UserError(f"Model {model!r} of the study: {error}") from None
        whole = _with_whole_paths({"model": recipe.model, "datasets": recipe.datasets})
        recipe = recipe.model_copy(update={**whole, "datasets": tuple(whole["datasets"])})
        runs.append(StudyRun(model + "".join(parts), model, recipe))
    return runs


def _folder_name(text: str) -> str:
    """A folder's name from a model's: its last part in small letters."""
    last = next((part for part in reversed(re.split(r"[/\\:]", text.strip())) if part.strip(".")), "")
    return re.sub(r"[^a-z0-9._]+", "-", last.lower()).strip(".-")[:_LONGEST_NAME]


def _with_whole_paths(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table with the whole paths of models and datasets that are files here; names stay names."""
    whole = dict(table)
    if "datasets" in table:
        whole["datasets"] = [absolute(text) for text in table["datasets"]]
    if "model" in table:
        model = table["model"]
        is_name = model in EMBEDDED or model.startswith("shape:") or not os.path.exists(model)
        whole["model"] = model if is_name else os.path.realpath(model)
    return whole
