"""The runs of a comparison under names of their own, and what differs between them: one line for every difference.

Two panels must never be mistaken for each other, so every run has a name that no other one has.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import polars as pl

from anchorscope.comparing.rules import FOUND, OPTIONS, Rule
from anchorscope.errors import UserError
from anchorscope.finished import FinishedRun, open_finished
from anchorscope.report.comparison.comparison_page import Difference
from anchorscope.report.findings import Findings
from anchorscope.report.palette import display_name
from anchorscope.report.wording import listing

ORDERS = ("size", "given")
"""How panels follow each other: from the smallest model to the largest, or as the runs were named."""


@dataclass(frozen=True)
class NamedRun:
    """One run of a comparison."""

    name: str
    """As the user calls it, or the model's name, with a number where several runs would share it."""
    folder: str
    """The name of its folder, with as much of the way there as tells it from the others; the rest is the user's own
    business."""
    run: FinishedRun

    @cached_property
    def findings(self) -> Findings:
        """The run's results under its name here."""
        return replace(self.run.findings, model=self.name)


def open_runs(
    paths: Sequence[Path], order: str = "size", names: Sequence[str] = (), *, one_is_enough: bool = False
) -> list[NamedRun]:
    """The finished runs in these folders, in order, under these names or their models'."""
    if len(paths) < 2 and not (one_is_enough and paths):
        found = f"only {str(paths[0])!r} was given" if paths else "none was given"
        alone = ", or judge the claims of earlier readings on it alone with --claims" if paths else ""
        raise UserError(f"A comparison needs at least two finished run folders, and {found}; name another one{alone}.")
    check_names(names, len(paths))
    places = [os.path.realpath(path) for path in paths]  # also of links in a circle
    repeated = [str(path) for path, place in zip(paths, places, strict=True) if places.count(place) > 1]
    if repeated:
        raise UserError(f"The run {repeated[0]!r} is named twice; a comparison needs runs in different folders.")
    opened = [open_finished(path) for path in paths]
    runs = list(zip(names or [run.manifest["model"]["name"] for run in opened], opened, strict=True))
    if order == "size":
        runs.sort(key=lambda pair: pair[1].manifest["model"]["parameters"])  # stable: equal sizes stay as given
    called = unique_names([name for name, _ in runs])
    folders = unique_folders([Path(os.path.realpath(run.path)) for _, run in runs])
    return [NamedRun(name, folder, run) for name, folder, (_, run) in zip(called, folders, runs, strict=True)]


def check_names(names: Sequence[str], runs: int) -> None:
    """Names that a user gave: none at all, or one for every run, none empty and none twice."""
    plain = all(name.strip() and "," not in name for name in names) and len(set(names)) == len(names)
    if names and (len(names) != runs or not plain):
        example = f"--names {','.join('ABCDEFGHIJKLMNOPQRSTUVWXYZ'[:runs])}"
        raise UserError(
            f"--names takes one name per run, in the order of the runs, none empty, none twice and none with a comma; "
            f"found for {runs} run{'s' * (runs != 1)}: {', '.join(map(repr, names))}. For example: {example}."
        )


def unique_names(models: Sequence[str]) -> list[str]:
    """The models' names, those that occur more than once with a number behind them."""
    chosen: list[str] = []
    for model in models:
        numbered = (f"{model} ({number})" for number in range(1, len(models) + 2))
        free = (name for name in numbered if name not in models and name not in chosen)
        chosen.append(model if models.count(model) == 1 else next(free))
    return chosen


def unique_folders(places: Sequence[Path]) -> list[str]:
    """The folders by as few of their last parts as tell all of them apart."""
    for length in range(1, max(len(place.parts) for place in places)):
        chosen = ["/".join(place.parts[1:][-length:]) for place in places]
        if len(set(chosen)) == len(chosen):
            return chosen
    return [str(place) for place in places]


def differences(runs: Sequence[NamedRun], allowed: Iterable[str] = ()) -> list[Difference]:
    """Every difference that the reader has to know; one that is refused and not allowed ends it with one line."""
    found = [one for look in (_options, _datasets, _questions, _weights, _versions) for one in look(runs)]
    refused, given = [one for one in found if one.refused], set(allowed)
    barred = [one for one in refused if one.name not in given]
    if barred:
        listed = "; ".join(f"{one.words} ({one.reason})" for one in barred)
        names = ",".join(one.name for one in refused)  # those that were allowed already have to be named again
        raise UserError(
            f"These runs are not comparable: {listed}. Repeat one with the options of the other, or put them side by "
            f"side all the same with --allow {names}."
        )
    return sorted(found, key=lambda one: not one.refused)


def _options(runs: Sequence[NamedRun]) -> list[Difference]:
    """Options of the recipes. A precision that was left to the machine is the one that the model had."""
    found = []
    for option, rule in OPTIONS.items():
        if rule.treatment != "ignore":
            values = {one.name: _shown(getattr(one.run.recipe, option)) for one in runs}
            if option == "dtype":
                values = {one.name: str(one.run.manifest["model"]["dtype"]) for one in runs}
            found += _differing(option.replace("_", "-"), rule, values)
    return found


def _datasets(runs: Sequence[NamedRun]) -> list[Difference]:
    """Datasets that were measured, whatever was asked for."""
    measured = {one.name: tuple(one.run.manifest["reference_layers"]) for one in runs}
    values = {name: ", ".join(map(display_name, sets)) for name, sets in measured.items()}
    if not set.intersection(*(set(sets) for sets in measured.values())):
        return _differing("datasets", FOUND["datasets"], values)
    if len({frozenset(sets) for sets in measured.values()}) == 1:
        return []
    return _differing("some-datasets", FOUND["some-datasets"], values, "datasets")


def _questions(runs: Sequence[NamedRun]) -> list[Difference]:
    """Questions that were asked in one run and not in another, dataset by dataset."""
    found = []
    for dataset in {name: None for one in runs for name in one.run.manifest["reference_layers"]}:
        having = [one for one in runs if dataset in one.run.manifest["reference_layers"]]
        asked = {one.name: _asked(one, dataset) for one in having}
        files = {one.run.manifest.get("inputs", {}).get(dataset) for one in having} - {None}
        shared = set.intersection(*asked.values())
        if all(questions == shared for questions in asked.values()) and len(files) <= 1:
            continue
        values = {name: f"{len(questions):,} asked" for name, questions in asked.items()}
        other_file = ", from files with other content" if len(files) > 1 else ""
        words = f"questions of {display_name(dataset)}: {_listed(values)}; {len(shared):,} in all of them{other_file}"
        found.append(Difference("questions", False, values, words, FOUND["questions"].reason))
    return found


def _asked(one: NamedRun, dataset: str) -> set[tuple[str, str]]:
    rows = one.findings.items.filter(pl.col("dataset") == dataset)
    return set(rows.select("item_id", "question").iter_rows())


def _weights(runs: Sequence[NamedRun]) -> list[Difference]:
    random = {one.name: "random weights" for one in runs if one.run.manifest["model"]["random_weights"]}
    words = f"random weights: {', '.join(random)}"
    found = [Difference("random-weights", False, random, words, FOUND["random-weights"].reason)] if random else []
    weights = {one.name: str(one.run.manifest["model"]["fingerprint"])[:16] for one in runs}
    curves = {one.name: str(one.run.manifest["sha256"].get("curves.csv")) for one in runs}
    for name, hashes in (("same-weights", weights), ("same-results", curves)):
        for value, _ in Counter(hashes.values()).most_common():
            same = {run: value for run, own in hashes.items() if own == value}
            if len(same) > 1:
                words = f"the {name.replace('-', ' ')}: {', '.join(same)}"
                found.append(Difference(name, False, same, words, FOUND[name].reason))
    return found


def _versions(runs: Sequence[NamedRun]) -> list[Difference]:
    tables: dict[str, Mapping[str, str]] = {one.name: one.run.manifest.get("versions", {}) for one in runs}
    parts = dict.fromkeys(part for table in tables.values() for part in table)
    differing = [part for part in parts if len({table.get(part) for table in tables.values()}) > 1]
    if not differing:
        return []
    values = {
        name: ", ".join(f"{part} {table.get(part, 'unknown')}" for part in differing) for name, table in tables.items()
    }
    return _differing("versions", FOUND["versions"], values)


def _differing(name: str, rule: Rule, values: Mapping[str, str], called: str | None = None) -> list[Difference]:
    """The difference, if there is one."""
    if len(set(values.values())) == 1:
        return []
    words = f"{called or name}: {_listed(values)}"
    return [Difference(name, rule.treatment == "refuse", values, words, rule.reason)]


def _listed(values: Mapping[str, str]) -> str:
    """mlp in A and B; residual in C."""
    having = {value: [name for name, one in values.items() if one == value] for value in values.values()}
    return "; ".join(f"{value} in {listing(names)}" for value, names in having.items())


def _shown(value: object) -> str:
    return "none" if value is None else str(value)
