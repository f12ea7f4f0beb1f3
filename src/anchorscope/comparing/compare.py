"""`compare` from top to bottom: open the runs, check that they can be compared, write the folder.

Nothing is measured again: everything comes from the run folders, without a model. Two panels must never be mistaken for
each other, so every run has a name that no other one has. What differs between runs is one line each (`rules.py` says
what may differ). The folder is written under another name and renamed, so that it is there whole or not at all.
"""

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from anchorscope.artefacts.sealed_folder import SealedFolder
from anchorscope.comparing.rules import OPTIONS, RULES, check_allowed
from anchorscope.errors import UserError, counted, faults_as_user_errors
from anchorscope.files import canonical_hash, sha256
from anchorscope.finished import FinishedRun, open_finished
from anchorscope.json_text import from_json
from anchorscope.progress import Progress, Silent
from anchorscope.report.comparison import (
    RANDOM_MARK,
    Compared,
    Difference,
    write_comparison,
)
from anchorscope.report.findings import Findings
from anchorscope.report.palette import display_name
from anchorscope.report.wording import listing

MANIFEST = "comparison.json"
"""Written last; a folder without it is no comparison."""
_FOLDER = SealedFolder("comparison", "anchorscope compare", MANIFEST)
_WITH_PATHS = {"model", "datasets", "columns"}
"""Options that may say where files lie on somebody's machine; name and fingerprint say enough."""
_PACKAGES = ("anchorscope", "torch", "transformers", "numpy")
"""Those whose versions may change numbers."""


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
        return pl.read_csv(
            _FOLDER.checked_file(self.path, self.manifest, "curves.csv"),
            infer_schema_length=None,
        )

    @cached_property
    def observations(self) -> list[dict[str, Any]]:
        """The readings across models, each run's own main readings, and claims where they were asked for."""
        file = _FOLDER.checked_file(self.path, self.manifest, "observations.json")
        observations: list[dict[str, Any]] = from_json(file.read_text(encoding="utf-8"))
        return observations


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
    paths, folder = [Path(getattr(run, "path", run)) for run in runs], Path(out)
    labels = [
        name.strip() for name in (names.split(",") if isinstance(names, str) else names)
    ]
    named = open_runs(paths, labels, one_is_enough=claims)
    words = ["anchorscope", "compare", *map(str, paths), "--out", str(out)]
    words += ["--names", ",".join(labels)] if labels else []
    words += ["--allow", ",".join(sorted(allowed))] if allowed else []
    words += ["--claims"] if claims else []
    write_folder(
        folder,
        named,
        allowed=allowed,
        command=shlex.join(words),
        progress=progress or Silent(),
        claims=claims,
    )
    return Comparison(folder)


def write_folder(
    out: Path,
    runs: Sequence["NamedRun"],
    allowed: Iterable[str],
    command: str,
    progress: Progress,
    claims: bool = False,
    missing: Sequence[tuple[str, str, str]] = (),
) -> None:
    """The folder of a comparison, in place of an earlier one; `missing` are runs of a study that are not in it."""
    flags = differences(runs, allowed) if len(runs) > 1 else []
    compared = Compared(
        runs=tuple(entry.findings for entry in runs),
        flags=tuple(flags),
        same_weights=len({entry.model["fingerprint"] for entry in runs})
        == 1
        < len(runs),
        command=command,
        missing=tuple(missing),
    )
    manifest = {
        "runs": [entry.record() for entry in runs],
        "differences": [flag.record() for flag in flags],
        "command": command,
        "options": {"claims": claims},
    }
    with _FOLDER.fresh(out) as half_made:
        answer = write_comparison(compared, half_made, progress, claims)
        _FOLDER.seal(half_made, {"answer": answer, **manifest})


# Runs and their names


@dataclass(frozen=True)
class NamedRun:
    """One run of a comparison."""

    name: str
    """As the user calls it, or the model's name, with its folder where several runs would share it."""
    folder: str
    """Its folder, from the one in which all runs are."""
    run: FinishedRun

    @property
    def model(self) -> dict[str, Any]:
        """What its manifest says of the model."""
        model: dict[str, Any] = self.run.manifest["model"]
        return model

    @cached_property
    def findings(self) -> Findings:
        """The run's results under its name here; random weights are named where nobody can overlook them."""
        mark = (
            f" ({RANDOM_MARK})"
            if self.model["random_weights"] and RANDOM_MARK not in self.name
            else ""
        )
        return replace(self.run.findings, model=self.name + mark)

    @property
    def datasets(self) -> tuple[str, ...]:
        return tuple(self.run.manifest["reference_layers"])

    def record(self) -> dict[str, Any]:
        """As comparison.json holds it."""
        return {
            "run": self.name,
            "folder": self.folder,
            "model": {
                name: value for name, value in self.model.items() if name != "source"
            },
            "datasets": list(self.datasets),
            "used": {
                row["dataset"]: row.get("used") for row in self.run.manifest["counts"]
            },
            "recipe": self.run.recipe.model_dump(mode="json", exclude=_WITH_PATHS),
            "versions": self.run.manifest.get("versions", {}),
            "manifest_sha256": sha256(self.run.path / "manifest.json"),
        }


def open_runs(
    paths: Sequence[Path], names: Sequence[str] = (), *, one_is_enough: bool = False
) -> list[NamedRun]:
    """The finished runs in these folders, the smallest model first, under these names or their models'."""
    if len(paths) < 2 and not (one_is_enough and paths):
        given = f"only {str(paths[0])!r} was given" if paths else "none was given"
        alone = (
            ", or judge the claims of earlier readings on it alone with --claims"
            if paths
            else ""
        )
        raise UserError(
            f"A comparison needs at least two finished run folders, and {given}; name another one{alone}."
        )
    n = len(paths)
    if names and (
        len(names) != n
        or len(set(names)) != n
        or not all(name and "," not in name for name in names)
    ):
        raise UserError(
            f"--names takes one name per run, in the order of the runs, none empty, none twice and none with a comma; "
            f"found for {counted(n, 'run')}: {', '.join(map(repr, names))}. For example: --names "
            f"{','.join('ABCDEFGHIJKLMNOPQRSTUVWXYZ'[:n])}."
        )
    real_paths = [os.path.realpath(path) for path in paths]  # also of links in a circle
    repeated = [
        str(path)
        for path, real in zip(paths, real_paths, strict=True)
        if real_paths.count(real) > 1
    ]
    if repeated:
        raise UserError(
            f"The run {repeated[0]!r} is named twice; a comparison needs runs in different folders."
        )
    opened = [open_finished(path) for path in paths]
    models = list(names) or [run.manifest["model"]["name"] for run in opened]
    above = os.path.commonpath([os.path.dirname(real) for real in real_paths])
    folders = [os.path.relpath(real, above) for real in real_paths]
    runs = [
        NamedRun(
            f"{model} ({folder})" if models.count(model) > 1 else model, folder, run
        )
        for model, folder, run in zip(models, folders, opened, strict=True)
    ]
    return sorted(
        runs, key=lambda run: run.model["parameters"]
    )  # equal sizes stay as given


# Differences


def differences(
    runs: Sequence[NamedRun], allowed: Iterable[str] = ()
) -> list[Difference]:
    """Every fact in which the runs differ; one that is refused and not allowed ends it with one line."""
    common = set.intersection(*(set(entry.datasets) for entry in runs))
    facts = {
        entry.name: _facts(entry, "some-datasets" if common else "datasets")
        for entry in runs
    }
    every = []
    for name in dict.fromkeys(name for own in facts.values() for name in own):
        values = {run: own[name] for run, own in facts.items() if name in own}
        if len(set(values.values())) > 1:
            kind = name.partition(" of ")[0]
            words = f"{name.removeprefix('some-')}: {_listed(values)}"
            every.append(
                Difference(
                    kind,
                    RULES[kind].treatment == "refuse",
                    values,
                    words,
                    RULES[kind].reason,
                )
            )
    curves = {
        entry.name: str(entry.run.manifest["sha256"].get("curves.csv"))
        for entry in runs
    }
    copies = {
        run: own for run, own in curves.items() if list(curves.values()).count(own) > 1
    }
    if copies:
        words = f"the same results: {listing(list(copies))}"
        every.append(
            Difference(
                "same-results", False, copies, words, RULES["same-results"].reason
            )
        )
    barred = [
        entry for entry in every if entry.refused and entry.name not in set(allowed)
    ]
    if barred:
        listed = "; ".join(f"{entry.words} ({entry.reason})" for entry in barred)
        # those allowed already have to be named again
        names = ",".join(entry.name for entry in every if entry.refused)
        raise UserError(
            f"These runs are not comparable: {listed}. Repeat one with the options of the other, or put them side by "
            f"side all the same with --allow {names}."
        )
    return sorted(every, key=lambda entry: not entry.refused)


def _facts(entry: NamedRun, datasets: str) -> dict[str, str]:
    """What a reader takes to be the same in all runs, in words; `datasets` names the rule about datasets."""
    manifest, items = entry.run.manifest, entry.findings.items
    options = {
        **dict(entry.run.recipe),
        "dtype": entry.model["dtype"],
    }  # what "auto" became
    facts = {
        name.replace("_", "-"): "none" if options[name] is None else str(options[name])
        for name, rule in OPTIONS.items()
        if rule.treatment != "ignore"
    }
    facts[datasets] = ", ".join(map(display_name, entry.datasets))
    for dataset in entry.datasets:
        asked = sorted(
            items.filter(pl.col("dataset") == dataset)
            .select("item_id", "question")
            .iter_rows()
        )
        content = canonical_hash([manifest.get("inputs", {}).get(dataset), asked])
        facts[f"questions of {display_name(dataset)}"] = (
            f"{len(asked):,} asked (list {content[:8]})"
        )
    facts["random-weights"] = "yes" if entry.model["random_weights"] else "no"
    versions = manifest.get("versions", {})
    return facts | {
        "versions": ", ".join(
            f"{name} {versions[name]}" for name in _PACKAGES if name in versions
        )
    }


def _listed(values: Mapping[str, str]) -> str:
    """mlp in A and B; residual in C."""
    having = {
        value: [name for name, other in values.items() if other == value]
        for value in values.values()
    }
    return "; ".join(f"{value} in {listing(names)}" for value, names in having.items())
