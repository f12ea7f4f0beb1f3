"""A study as it is written down: models × prompts × seeds on the same datasets, spelled out run by run.

    name = "sizes"
    models = ["OWNER/SMALL", {name = "large", model = "OWNER/LARGE", dtype = "bfloat16"}]
    datasets = ["popqa", "triviaqa"]
    prompts = ["few-shot", "zero-shot"]
    seeds = [0, 1, 2]

    [defaults]
    limit = 2000

`[defaults]` takes every option of a recipe, and a model's own table wins over it. A run is one model with one prompt
and one seed on all the datasets: it loads the model once. Runs stand in order of their models, so that one model after
the other is needed. A run is named after its model, and after prompt and seed where the study lists them.
"""

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from anchorscope.datasets.catalog import absolute
from anchorscope.errors import UserError, shortened, unknown
from anchorscope.files import canonical_hash
from anchorscope.models.embedded import EMBEDDED
from anchorscope.recipe import Recipe, is_plain_text, make_recipe, read_recipe

_KNOWN = ("name", "models", "datasets", "prompts", "seeds", "defaults")
_AXES = {"prompts": "prompt", "seeds": "seed"}
_BESIDE = {"model": "models", "models": "models", "datasets": "datasets", "prompts": "prompts", "seeds": "seeds"}
MOST_RUNS = 10_000
"""Runs of one study: more than anybody will wait for."""
_LONGEST_NAME = 80  # letters of a model's part in a folder's name
_NOT_IN_NAMES = re.compile(r"[^a-z0-9._]+")


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
        found = read_recipe(path)
    except UserError as error:
        told = str(error).replace("Recipe ", "Study ", 1).replace("a TOML file of options", "a TOML file of a study")
        raise UserError(told.replace(", or leave it out and use options", " with models and datasets")) from None
    return make_study(found, path.stem)


def make_study(found: Mapping[str, Any], name: str) -> Study:
    """A study from what its file says; `name` is used where it gives none."""
    for key in found:
        if key not in _KNOWN:
            hint = f"Options of runs stand under [defaults]: {key} = …" if key in Recipe.model_fields else ""
            raise unknown("key of a study", key, _KNOWN, hint)
    defaults = found.get("defaults", {})
    if not isinstance(defaults, dict):
        raise UserError(f"The study's 'defaults' is {shortened(defaults)}; it must be a table of options, [defaults].")
    for key in defaults:
        if key in _BESIDE:
            raise UserError(
                f"The study has {key!r} under [defaults]; write {_BESIDE[key]} = [...] above the first table."
            )
    name = found.get("name", name)
    if not isinstance(name, str) or not name.strip() or not is_plain_text(name):
        raise UserError(f"The study's 'name' is {shortened(name)}; it must be a few words.")
    datasets, models = _listed(found, "datasets", str), _models(_listed(found, "models", (str, dict)))
    listed = {key: _listed(found, key, int if key == "seeds" else str, needed=False) for key in _AXES}
    n_runs = len(models) * math.prod(max(1, len(one)) for one in listed.values())
    if n_runs > MOST_RUNS:
        raise UserError(f"The study has {n_runs:,} runs; {MOST_RUNS:,} at most. Make several studies of it.")
    runs = tuple(run for one in models.items() for run in _runs_of(one, {"datasets": datasets, **defaults}, listed))
    tables = [
        {"name": own, **options, "model": written_out(options["model"]), **_own_datasets(options)}
        for own, options in models.items()
    ]
    return Study(name, runs, {**found, "name": name, "models": tables, **_own_datasets(found)})


def _listed(found: Mapping[str, Any], key: str, kind: type | tuple[type, ...], needed: bool = True) -> list[Any]:
    """A list of the study, none of it twice."""
    if key not in found and not needed:
        return []
    values = found.get(key)
    if not isinstance(values, list) or not values:
        what = "has no" if values is None else f"says {shortened(values)} for"
        raise UserError(f"The study {what} {key!r}; it must be a list with at least one entry, {key} = [...].")
    if len(values) > MOST_RUNS:
        raise UserError(f"The study lists {len(values):,} {key}; {MOST_RUNS:,} at most. Make several studies of it.")
    for value in values:
        if not isinstance(value, kind) or isinstance(value, bool):
            raise UserError(f"The study has {shortened(value)} among its {key}; {_ENTRIES[key]}.")
    twice = [value for place, value in enumerate(values) if value in values[:place]]
    if twice:
        raise UserError(f"The study lists {shortened(twice[0])} twice among its {key}; leave one out.")
    return values


_ENTRIES = {
    "models": 'an entry is a model\'s name, or a table {name = "…", model = "…"}',
    "datasets": 'an entry is a dataset like "atlas" or the path of a file',
    "prompts": "an entry is the name of a prompt",
    "seeds": "an entry is a whole number",
}


def _models(entries: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Name and options of every model; no two have the same name."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        options = {"model": entry} if isinstance(entry, str) else dict(entry)
        model, given = options.get("model"), options.pop("name", None)
        if not isinstance(model, str) or not model.strip() or not is_plain_text(model):
            raise UserError(f"The study has the model {shortened(entry)}; {_ENTRIES['models']}.")
        if given is not None and (not isinstance(given, str) or given != _slug(given)):
            told = f" For example {_slug(given)!r}." if isinstance(given, str) and _slug(given) else ""
            raise UserError(
                f"The study calls a model {shortened(given)}; its name is one of folders: small letters, digits, '.', "
                f"'_' and '-', {_LONGEST_NAME} at most.{told}"
            )
        name = given or _slug(model)
        if not name:
            raise UserError(f"The study has the model {shortened(model)}, which gives no name; {_ENTRIES['models']}.")
        if name in found:
            raise UserError(
                f"Two models of the study are called {name!r}: {shortened(found[name]['model'])} and "
                f'{shortened(model)}. Give one a name of its own: {{name = "…", model = {shortened(model)}}}.'
            )
        found[name] = options
    return found


def _runs_of(
    model: tuple[str, dict[str, Any]], defaults: Mapping[str, Any], listed: Mapping[str, list[Any]]
) -> list[StudyRun]:
    """Every prompt and seed of one model; one that its own table sets is the only one."""
    name, own = model
    axes: dict[str, list[Any]] = {}
    for key, option in _AXES.items():
        if listed[key] and option in defaults:
            raise UserError(f"The study has both {key} = [...] and {option!r} under [defaults]; leave one of them out.")
        axes[option] = [own[option]] if option in own else listed[key] or [defaults.get(option)]
    runs = []
    for prompt in axes["prompt"]:
        for seed in axes["seed"]:
            chosen = {key: value for key, value in (("prompt", prompt), ("seed", seed)) if value is not None}
            parts = [f"-{prompt}" if listed["prompts"] else "", f"-seed{seed}" if listed["seeds"] else ""]
            try:
                recipe = make_recipe({**defaults, **own, **chosen})
            except UserError as error:
                raise UserError(f"Model {name!r} of the study: {error}") from None
            here = {"model": written_out(recipe.model), "datasets": tuple(absolute(text) for text in recipe.datasets)}
            runs.append(StudyRun(name + "".join(parts), name, recipe.model_copy(update=here)))
    return runs


def _slug(text: str) -> str:
    """A folder's name from a model's: its last part in small letters."""
    last = next((part for part in reversed(re.split(r"[/\\:]", text.strip())) if part.strip(".")), "")
    return _NOT_IN_NAMES.sub("-", last.lower()).strip(".-")[:_LONGEST_NAME]


def _own_datasets(table: Mapping[str, Any]) -> dict[str, Any]:
    return {"datasets": [absolute(text) for text in table["datasets"]]} if "datasets" in table else {}


def written_out(model: str) -> str:
    """A folder or file with its whole path; names stay names."""
    try:
        is_name = model in EMBEDDED or model.startswith("shape:")
        return model if is_name or not os.path.exists(model) else os.path.realpath(model)
    except (OSError, ValueError):
        return model
