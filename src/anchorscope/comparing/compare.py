"""`compare` from top to bottom: open the runs, check that they can be compared, write the page.

Nothing is measured again: everything comes from the run folders, without a model. The folder is written under another
name and renamed, so that it is there whole or not at all.
"""

import contextlib
import json
import os
import shlex
from collections.abc import Sequence
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import polars as pl

from anchorscope.artefacts.sealed_folder import SealedFolder
from anchorscope.comparing.differences import ORDERS, NamedRun, differences, open_runs
from anchorscope.comparing.rules import check_allowed
from anchorscope.errors import UserError, faults_as_user_errors, unknown
from anchorscope.files import sha256
from anchorscope.progress import Progress, Silent
from anchorscope.report.assignment_rules import RULES
from anchorscope.report.charts.delta_p import chart_rows
from anchorscope.report.comparison.compared import Compared, Difference
from anchorscope.report.comparison.comparison_page import write_comparison

_WITH_PATHS = {"model", "datasets", "columns"}
"""Options that may say where files lie on somebody's machine; name and fingerprint say enough."""


class Comparison:
    """A finished comparison; tables are read when they are first asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = read_comparison(path)

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
    relative_depth: bool = False,
    assignment: str = "plain",
    order: str = "size",
    allow: str | Sequence[str] = (),
    names: str | Sequence[str] = (),
    claims: bool = False,
    progress: Progress | None = None,
) -> Comparison:
    """Puts finished runs side by side into the folder `out`; the options are those of `anchorscope compare`.

    A run is its folder, or what `anchorscope.run` and `anchorscope.open_run` return. `names` are labels in the order of
    the runs, as a list or with commas. With `claims` those of earlier readings are judged too, and one run is enough.
    """
    for kind, chosen, known in (("assignment", assignment, tuple(RULES)), ("order", order, ORDERS)):
        if chosen not in known:
            raise unknown(kind, chosen, known)
    allowed = check_allowed((allow,) if isinstance(allow, str) else tuple(allow))
    paths = [Path(getattr(run, "path", run)) for run in runs]
    labels = [name.strip() for name in (names.split(",") if isinstance(names, str) else names)]
    named = open_runs(paths, order, labels, one_is_enough=claims)
    found = differences(named, allowed)
    compared = Compared(
        runs=tuple(one.findings for one in named),
        folders=tuple(one.folder for one in named),
        assignment=assignment,
        relative_depth=relative_depth,
        flags=tuple(found),
        same_weights=len({one.run.manifest["model"]["fingerprint"] for one in named}) == 1 < len(named),
        command=_command(
            paths,
            Path(out),
            {
                "names": ",".join(labels),
                "assignment": "" if assignment == "plain" else assignment,
                "order": "" if order == "size" else order,
                "relative-depth": relative_depth,
                "claims": claims,
                "allow": ",".join(sorted(allowed)),
            },
        ),
    )
    _check_rule(compared)
    place = Path(out)
    with fresh_folder(place, paths) as half_made:
        _curves(named).write_csv(half_made / "curves.csv")
        answer = write_comparison(compared, half_made, progress or Silent(), claims)
        manifest = _manifest(named, compared, found, {"order": order, "claims": claims})
        _FOLDER.seal(half_made, {"answer": answer, **manifest})
    return Comparison(place)


def _check_rule(compared: Compared) -> None:
    """A rule that a run was not sorted by cannot be drawn."""
    for run in compared.runs:
        if not chart_rows(run, compared.assignment).height:
            has = [rule for rule in RULES if chart_rows(run, rule).height]
            raise UserError(
                f"The run of {run.model} has no curves under the rule {compared.assignment!r}; it has: "
                f"{', '.join(has) or 'none'}. Choose one that all runs have with --assignment."
            )


def _curves(named: Sequence[NamedRun]) -> pl.DataFrame:
    """All curves of all runs; `model` stays as each run wrote it, `run` is unique."""
    tables = [one.run.findings.curves.select(pl.lit(one.name).alias("run"), pl.all()) for one in named]
    return pl.concat(tables, how="diagonal_relaxed")


def _manifest(
    named: Sequence[NamedRun], compared: Compared, found: Sequence[Difference], options: dict[str, Any]
) -> dict[str, Any]:
    """What was compared, for programs and for those who want to do it again."""
    return {
        "runs": [
            {
                "run": one.name,
                "folder": one.folder,
                "model": {name: value for name, value in one.run.manifest["model"].items() if name != "source"},
                "datasets": list(one.run.manifest["reference_layers"]),
                "used": {row["dataset"]: row.get("used") for row in one.run.manifest["counts"]},
                "recipe": one.run.recipe.model_dump(mode="json", exclude=_WITH_PATHS),
                "versions": one.run.manifest.get("versions", {}),
                "manifest_sha256": sha256(one.run.path / "manifest.json"),
            }
            for one in named
        ],
        "differences": [one.record() for one in found],
        "options": {"assignment": compared.assignment, "relative_depth": compared.relative_depth, **options},
        "command": compared.command,
        "versions": {name: _version(name) for name in ("anchorscope", "polars", "numpy", "matplotlib")},
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed as a package"


def _command(paths: Sequence[Path], out: Path, options: dict[str, str | bool]) -> str:
    """What repeats it, ready to be pasted: the folders as they were given, and every option that was set."""
    told = [part for name, value in options.items() if value for part in (f"--{name}", value) if isinstance(part, str)]
    return shlex.join(["anchorscope", "compare", *map(str, paths), "--out", str(out), *told])


MANIFEST = "comparison.json"
"""Written last; a folder without it is no comparison."""
FILES = ("curves.csv", "observations.json", "figures", "report.html", "report.md", MANIFEST)
"""Everything that a comparison writes."""
_FOLDER = SealedFolder("comparison", "anchorscope compare", MANIFEST, FILES)


def fresh_folder(out: Path, runs: Sequence[Path]) -> contextlib.AbstractContextManager[Path]:
    """A new folder to write into; when all is done it takes the place of `out`, and of an earlier comparison there."""
    above = Path(os.path.realpath(out)).parents
    for run in (Path(os.path.realpath(one)) for one in runs):
        if run in above:  # a run itself holds other things than a comparison, and that is reported
            raise UserError(f"{str(out)!r} lies within the run {str(run)!r}, which is sealed; choose another --out.")
    return _FOLDER.fresh(out)


def read_comparison(path: Path) -> dict[str, Any]:
    """The manifest of a comparison."""
    return _FOLDER.read(path)
