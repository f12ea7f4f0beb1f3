"""`compare` from top to bottom: open the runs, check that they can be compared, write the page.

Nothing is measured again: everything comes from the run folders, without a model. Two panels must never be mistaken for
each other, so every run has a name that no other one has. What differs between runs is one line each (`rules.py` says
what may differ). The folder is written under another name and renamed, so that it is there whole or not at all.
"""

import contextlib
import json
import os
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from anchorscope.artefacts.sealed_folder import SealedFolder
from anchorscope.comparing.rules import FOUND, OPTIONS, Rule, check_allowed
from anchorscope.errors import UserError, faults_as_user_errors
from anchorscope.files import sha256
from anchorscope.finished import FinishedRun, open_finished
from anchorscope.progress import Progress, Silent
from anchorscope.report.comparison.comparison_page import Compared, Difference, write_comparison
from anchorscope.report.findings import Findings
from anchorscope.report.palette import display_name
from anchorscope.report.wording import listing

MANIFEST = "comparison.json"
"""Written last; a folder without it is no comparison."""
FILES = ("curves.csv", "observations.json", "figures", "report.html", "report.md", MANIFEST)
"""Everything that a comparison writes."""
_FOLDER = SealedFolder("comparison", "anchorscope compare", MANIFEST, FILES)
_WITH_PATHS = {"model", "datasets", "columns"}
"""Options that may say where files lie on somebody's machine; name and fingerprint say enough."""


class Comparison:
    """A finished comparison; tables are read when they are first asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = _FOLDER.read(path)

    def __repr__(self) -> str:
        return f"Comparison({str(self.path)!r}, runs={[run['run'] for run in self.manifest['runs']]})"

    @cached_property
    def curves(self) -> pl.DataFrame:
        """Mean ΔP per layer of all runs; `run` tells them apart."""
        return pl.read_csv(_FOLDER.place(self.path, self.manifest, "curves.csv"), infer_schema_length=None)

    @cached_property
    def observations(self) -> list[dict[str, Any]]:
        """The readings across models, each run's own main readings, and claims where they were asked for."""
        place = _FOLDER.place(self.path, self.manifest, "observations.json")
        found: list[dict[str, Any]] = json.loads(place.read_text(encoding="utf-8"))
        return found


@faults_as_user_errors()
def compare(
    runs: Sequence[str | Path | Any],
    *,
    out: str | Path,
    allow: str | Sequence[str] = (),
    names: str | Sequence[str] = (),
    claims: bool = False,
    progress: Progress | None = None,
) -> Comparison:
    """Puts finished runs side by side into the folder `out`; the options are those of `anchorscope compare`.

    A run is its folder, or what `anchorscope.run` and `anchorscope.open_run` return. `names` are labels in the order of
    the runs, as a list or with commas. With `claims` those of earlier readings are judged too, and one run is enough.
    """
    allowed = check_allowed((allow,) if isinstance(allow, str) else tuple(allow))
    paths, place = [Path(getattr(run, "path", run)) for run in runs], Path(out)
    labels = [name.strip() for name in (names.split(",") if isinstance(names, str) else names)]
    named = open_runs(paths, labels, one_is_enough=claims)
    options = {"--names": ",".join(labels), "--allow": ",".join(sorted(allowed))}
    words = [word for name, value in options.items() if value for word in (name, value)]
    compared = Compared(
        runs=tuple(entry.findings for entry in named),
        folders=tuple(entry.folder for entry in named),
        flags=tuple(differences(named, allowed)),
        same_weights=len({entry.run.manifest["model"]["fingerprint"] for entry in named}) == 1 < len(named),
        command=shlex.join(
            ["anchorscope", "compare", *map(str, paths), "--out", str(out), *words, *["--claims"] * claims]
        ),
    )
    with fresh_folder(place, paths) as half_made:
        curves = [entry.run.findings.curves.select(pl.lit(entry.name).alias("run"), pl.all()) for entry in named]
        pl.concat(curves, how="diagonal_relaxed").write_csv(half_made / "curves.csv")
        answer = write_comparison(compared, half_made, progress or Silent(), claims)
        _FOLDER.seal(half_made, {"answer": answer, **_manifest(named, compared), "options": {"claims": claims}})
    return Comparison(place)


def fresh_folder(out: Path, runs: Sequence[Path]) -> contextlib.AbstractContextManager[Path]:
    """A new folder to write into; when all is done it takes the place of `out`, and of an earlier comparison there."""
    above = Path(os.path.realpath(out)).parents
    for run in (Path(os.path.realpath(path)) for path in runs):
        if run in above:  # a run itself holds other things than a comparison, and that is reported
            raise UserError(f"{str(out)!r} lies within the run {str(run)!r}, which is sealed; choose another --out.")
    return _FOLDER.fresh(out)


def _manifest(named: Sequence["NamedRun"], compared: Compared) -> dict[str, Any]:
    """What was compared, for programs and for those who want to do it again."""
    return {
        "runs": [
            {
                "run": entry.name,
                "folder": entry.folder,
                "model": {name: value for name, value in entry.run.manifest["model"].items() if name != "source"},
                "datasets": list(entry.run.manifest["reference_layers"]),
                "used": {row["dataset"]: row.get("used") for row in entry.run.manifest["counts"]},
                "recipe": entry.run.recipe.model_dump(mode="json", exclude=_WITH_PATHS),
                "versions": entry.run.manifest.get("versions", {}),
                "manifest_sha256": sha256(entry.run.path / "manifest.json"),
            }
            for entry in named
        ],
        "differences": [flag.record() for flag in compared.flags],
        "command": compared.command,
    }


# Runs and their names


@dataclass(frozen=True)
class NamedRun:
    """One run of a comparison."""

    name: str
    """As the user calls it, or the model's name, with its folder where several runs would share it."""
    folder: str
    """The name of its folder, with as much of the way there as tells it from the others."""
    run: FinishedRun

    @cached_property
    def findings(self) -> Findings:
        """The run's results under its name here."""
        return replace(self.run.findings, model=self.name)


def open_runs(paths: Sequence[Path], names: Sequence[str] = (), *, one_is_enough: bool = False) -> list[NamedRun]:
    """The finished runs in these folders, the smallest model first, under these names or their models'."""
    if len(paths) < 2 and not (one_is_enough and paths):
        given = f"only {str(paths[0])!r} was given" if paths else "none was given"
        alone = ", or judge the claims of earlier readings on it alone with --claims" if paths else ""
        raise UserError(f"A comparison needs at least two finished run folders, and {given}; name another one{alone}.")
    n = len(paths)
    if names and (len(names) != n or len(set(names)) != n or not all(name and "," not in name for name in names)):
        raise UserError(
            f"--names takes one name per run, in the order of the runs, none empty, none twice and none with a comma; "
            f"found for {n} run{'s' * (n != 1)}: {', '.join(map(repr, names))}. For example: --names "
            f"{','.join('ABCDEFGHIJKLMNOPQRSTUVWXYZ'[:n])}."
        )
    places = [os.path.realpath(path) for path in paths]  # also of links in a circle
    repeated = [str(path) for path, place in zip(paths, places, strict=True) if places.count(place) > 1]
    if repeated:
        raise UserError(f"The run {repeated[0]!r} is named twice; a comparison needs runs in different folders.")
    opened = [open_finished(path) for path in paths]
    models = list(names) or [run.manifest["model"]["name"] for run in opened]
    folders = _unique_folders([Path(place) for place in places])
    runs = [
        NamedRun(f"{model} ({folder})" if models.count(model) > 1 else model, folder, run)
        for model, folder, run in zip(models, folders, opened, strict=True)
    ]
    return sorted(runs, key=lambda run: run.run.manifest["model"]["parameters"])  # equal sizes stay as given


def _unique_folders(places: Sequence[Path]) -> list[str]:
    """The folders by as few of their last parts as tell all of them apart."""
    for length in range(1, max(len(place.parts) for place in places)):
        chosen = ["/".join(place.parts[1:][-length:]) for place in places]
        if len(set(chosen)) == len(chosen):
            return chosen
    return [str(place) for place in places]


# Differences


def differences(runs: Sequence[NamedRun], allowed: Iterable[str] = ()) -> list[Difference]:
    """Every difference that the reader has to know; one that is refused and not allowed ends it with one line."""
    every = [entry for look in (_options, _datasets, _questions, _weights, _versions) for entry in look(runs)]
    refused, given = [entry for entry in every if entry.refused], set(allowed)
    barred = [entry for entry in refused if entry.name not in given]
    if barred:
        listed = "; ".join(f"{entry.words} ({entry.reason})" for entry in barred)
        names = ",".join(entry.name for entry in refused)  # those that were allowed already have to be named again
        raise UserError(
            f"These runs are not comparable: {listed}. Repeat one with the options of the other, or put them side by "
            f"side all the same with --allow {names}."
        )
    return sorted(every, key=lambda entry: not entry.refused)


def _options(runs: Sequence[NamedRun]) -> list[Difference]:
    """Options of the recipes. A precision that was left to the machine is the one that the model had."""
    differences = []
    for option, rule in OPTIONS.items():
        if rule.treatment != "ignore":
            values = {entry.name: _shown(getattr(entry.run.recipe, option)) for entry in runs}
            if option == "dtype":
                values = {entry.name: str(entry.run.manifest["model"]["dtype"]) for entry in runs}
            differences += _differing(option.replace("_", "-"), rule, values)
    return differences


def _datasets(runs: Sequence[NamedRun]) -> list[Difference]:
    """Datasets that were measured, whatever was asked for."""
    measured = {entry.name: tuple(entry.run.manifest["reference_layers"]) for entry in runs}
    values = {name: ", ".join(map(display_name, sets)) for name, sets in measured.items()}
    if not set.intersection(*(set(sets) for sets in measured.values())):
        return _differing("datasets", FOUND["datasets"], values)
    if len({frozenset(sets) for sets in measured.values()}) == 1:
        return []
    return _differing("some-datasets", FOUND["some-datasets"], values, "datasets")


def _questions(runs: Sequence[NamedRun]) -> list[Difference]:
    """Questions that were asked in one run and not in another, dataset by dataset."""
    differences = []
    for dataset in {name: None for entry in runs for name in entry.run.manifest["reference_layers"]}:
        having = [entry for entry in runs if dataset in entry.run.manifest["reference_layers"]]
        asked = {entry.name: _asked(entry, dataset) for entry in having}
        files = {entry.run.manifest.get("inputs", {}).get(dataset) for entry in having} - {None}
        shared = set.intersection(*asked.values())
        if all(questions == shared for questions in asked.values()) and len(files) <= 1:
            continue
        values = {name: f"{len(questions):,} asked" for name, questions in asked.items()}
        other_file = ", from files with other content" if len(files) > 1 else ""
        words = f"questions of {display_name(dataset)}: {_listed(values)}; {len(shared):,} in all of them{other_file}"
        differences.append(Difference("questions", False, values, words, FOUND["questions"].reason))
    return differences


def _asked(entry: NamedRun, dataset: str) -> set[tuple[str, str]]:
    rows = entry.findings.items.filter(pl.col("dataset") == dataset)
    return set(rows.select("item_id", "question").iter_rows())


def _weights(runs: Sequence[NamedRun]) -> list[Difference]:
    random = {entry.name: "random weights" for entry in runs if entry.run.manifest["model"]["random_weights"]}
    words = f"random weights: {', '.join(random)}"
    differences = [Difference("random-weights", False, random, words, FOUND["random-weights"].reason)] if random else []
    weights = {entry.name: str(entry.run.manifest["model"]["fingerprint"])[:16] for entry in runs}
    curves = {entry.name: str(entry.run.manifest["sha256"].get("curves.csv")) for entry in runs}
    for name, hashes in (("same-weights", weights), ("same-results", curves)):
        for value, _ in Counter(hashes.values()).most_common():
            same = {run: value for run, own in hashes.items() if own == value}
            if len(same) > 1:
                words = f"the {name.replace('-', ' ')}: {', '.join(same)}"
                differences.append(Difference(name, False, same, words, FOUND[name].reason))
    return differences


def _versions(runs: Sequence[NamedRun]) -> list[Difference]:
    tables: dict[str, Mapping[str, str]] = {entry.name: entry.run.manifest.get("versions", {}) for entry in runs}
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
    having = {value: [name for name, other in values.items() if other == value] for value in values.values()}
    return "; ".join(f"{value} in {listing(names)}" for value, names in having.items())


def _shown(value: object) -> str:
    return "none" if value is None else str(value)
