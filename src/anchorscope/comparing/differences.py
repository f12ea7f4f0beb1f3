"""What differs between the runs of a comparison, and whether it may stand: one line for every difference."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from anchorscope.comparing.named import NamedRun
from anchorscope.comparing.rules import FOUND, OPTIONS, Rule
from anchorscope.errors import UserError
from anchorscope.report.palette import display_name
from anchorscope.report.story import listing


@dataclass(frozen=True)
class Difference:
    """One thing in which the runs are not alike."""

    name: str
    """As `--allow` takes it: site, group-by, random-weights …"""
    refused: bool
    """Whether it stands only because the user allowed it."""
    values: Mapping[str, str]
    """What each run has, by the run's name."""
    words: str
    """The difference without its reason: "site: mlp in A; residual in B"."""
    reason: str
    """What it does to the comparison."""

    @property
    def text(self) -> str:
        """The whole line."""
        return f"{self.words}. {self.reason[0].upper()}{self.reason[1:]}."

    def record(self) -> dict[str, Any]:
        """For programs."""
        kind = "allowed" if self.refused else "flag"
        return {"name": self.name, "kind": kind, "text": self.text, "values": dict(self.values)}


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
    found = []
    random = {one.name: "random weights" for one in runs if one.run.manifest["model"]["random_weights"]}
    if random:
        words = f"random weights: {', '.join(random)}"
        found.append(Difference("random-weights", False, random, words, FOUND["random-weights"].reason))
    prints = {one.name: str(one.run.manifest["model"]["fingerprint"]) for one in runs}
    for shared in dict.fromkeys(prints.values()):
        same = {name: shared[:16] for name, value in prints.items() if value == shared}
        if len(same) > 1:
            words = f"the very same weights (fingerprint {shared[:16]}): {', '.join(same)}"
            found.append(Difference("same-weights", False, same, words, FOUND["same-weights"].reason))
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
