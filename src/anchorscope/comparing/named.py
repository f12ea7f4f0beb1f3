"""A run with a name that no other run of the comparison has: two panels must never be mistaken for each other."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from anchorscope.artefacts.finished import FinishedRun, open_finished
from anchorscope.errors import UserError
from anchorscope.report.findings import Findings

ORDERS = ("size", "given")
"""How panels follow each other: from the smallest model to the largest, or as the runs were named."""
_ASKED = ("name", "parameters", "n_layers", "dtype", "fingerprint", "random_weights")


@dataclass(frozen=True)
class NamedRun:
    """One run of a comparison."""

    name: str
    """The model's name, with a number where several runs would share it."""
    folder: str
    """The name of its folder, with as much of the way there as tells it from the others; the rest is the user's own
    business."""
    run: FinishedRun

    @cached_property
    def findings(self) -> Findings:
        """The run's results under its name here."""
        return replace(self.run.findings, model=self.name)


def open_runs(paths: Sequence[Path], order: str = "size") -> list[NamedRun]:
    """The finished runs in these folders, named and in order."""
    if len(paths) < 2:
        found = f"only {str(paths[0])!r} was given" if paths else "none was given"
        raise UserError(f"A comparison needs at least two finished run folders, and {found}; name another one.")
    places = [path.resolve() for path in paths]
    repeated = [str(path) for path, place in zip(paths, places, strict=True) if places.count(place) > 1]
    if repeated:
        raise UserError(f"The run {repeated[0]!r} is named twice; a comparison needs runs in different folders.")
    runs = [_whole(open_finished(path)) for path in paths]
    if order == "size":
        runs = sorted(runs, key=lambda run: run.manifest["model"]["parameters"])  # stable: equal sizes stay as given
    names = unique_names([run.manifest["model"]["name"] for run in runs])
    folders = unique_folders([run.path.resolve() for run in runs])
    return [NamedRun(*one) for one in zip(names, folders, runs, strict=True)]


def unique_names(models: Sequence[str]) -> list[str]:
    """The models' names, those that occur more than once with a number behind them."""
    taken, chosen = set(models), []
    for model in models:
        name, number = model, 0
        while models.count(model) > 1 and name in taken:
            number += 1
            name = f"{model} ({number})"
        taken.add(name)
        chosen.append(name)
    return chosen


def unique_folders(places: Sequence[Path]) -> list[str]:
    """The folders by as few of their last parts as tell all of them apart."""
    for length in range(1, max(len(place.parts) for place in places)):
        chosen = ["/".join(place.parts[1:][-length:]) for place in places]
        if len(set(chosen)) == len(chosen):
            return chosen
    return [str(place) for place in places]


def _whole(run: FinishedRun) -> FinishedRun:
    """The run, if its manifest says what a comparison asks of it."""
    model = run.manifest.get("model", {}) if isinstance(run.manifest, dict) else {}
    missing = [name for name in _ASKED if name not in model]
    if missing:
        raise UserError(
            f"The manifest of {str(run.path)!r} does not say the model's {', '.join(missing)}: it was made by another "
            f"version or program. Repeat the run with: anchorscope run {run.path / 'recipe.toml'} --out NEW_FOLDER"
        )
    return run
