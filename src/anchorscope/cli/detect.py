"""`anchorscope detect`: hallucination detectors, fitted on what runs kept, compared and saved."""

from pathlib import Path
from typing import Annotated

import typer

from anchorscope.catalogue import DETECTORS
from anchorscope.cli.terminal import emit_json, listener, say, user_errors
from anchorscope.recipe import named_folder

_STOPPED = "stopped; nothing half made was kept, the same command starts again"
_NAMES = ", ".join(name for name, one in DETECTORS.items() if one.variant_of is None)
_DETECTORS = f"Detectors to compare, names with commas; all where not given: {_NAMES}, and their controls."
_BUNDLES = (
    "Detectors to save, names with commas; where not given, of confidence, probe, probe+confidence, counterfactual and "
    "anchor those that the runs allow."
)
_RISK = "Shares of false answers among the accepted ones that saved detectors have thresholds for; the first leads."


def detect(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Finished runs of one model that kept states (--keep states,states-cut,"
                                           "detection); a run under another prompt is a target."),
    ],
    out: Annotated[str, typer.Option(help="The folder for tables, figures, bundles and the page.")],
    detectors: Annotated[str, typer.Option(help=_DETECTORS)] = "",
    bundles: Annotated[str | None, typer.Option(help=_BUNDLES, show_default=False)] = None,
    fit_only: Annotated[
        bool, typer.Option("--fit-only", help="Compare nothing: fit and save detectors, each as a folder in --out.")
    ] = False,
    folds: Annotated[int, typer.Option(help="Outer folds.")] = 5,
    seeds: Annotated[int, typer.Option(help="Fold seeds: everything is fitted anew for each.")] = 5,
    tosses: Annotated[int, typer.Option(help="Fits on tossed labels, the control that must give 0.5.")] = 20,
    resamples: Annotated[int, typer.Option(help="Bootstrap resamples behind every interval.")] = 1000,
    risk: Annotated[str, typer.Option(help=_RISK)] = "0.1,0.05,0.2,0.3",
    seed: Annotated[int, typer.Option(help="Seed of every draw.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N: where detectors are fitted.")] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress; errors only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Fit hallucination detectors on what runs kept: which is worth its passes, and does it survive on other data?"""
    from anchorscope.detecting.detect import detect as detect_runs

    with user_errors(stopped=_STOPPED):
        made = detect_runs(
            runs, out=named_folder(out), progress=listener(quiet), detectors=_names(detectors),
            bundles=None if bundles is None else _names(bundles), fit_only=fit_only, folds=folds, seeds=seeds,
            tosses=tosses, resamples=resamples, risks=_numbers(risk), seed=seed, device=device,
        )  # fmt: skip
    for warning in made.manifest["warnings"]:
        say(f"warning: {warning}", quiet)
    if as_json:
        emit_json({"out": str(out), **{name: value for name, value in made.manifest.items() if name != "sha256"}})
    elif not quiet:
        saved = ", ".join(made.manifest["bundles"]) or "none"
        say(f"saved:  {saved}" + ("" if fit_only else f"\nreport: {Path(out) / 'report.html'}"))


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _numbers(text: str) -> tuple[float, ...]:
    from anchorscope.errors import UserError

    try:
        return tuple(float(part) for part in _names(text))
    except ValueError:
        raise UserError(f"--risk is {text!r}; give shares between 0 and 1 with commas, like 0.1,0.2.") from None
