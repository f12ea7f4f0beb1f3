"""`anchorscope detect`: hallucination detectors, fitted on what runs kept, compared and saved."""

from pathlib import Path
from typing import Annotated

import typer

from anchorscope.catalogue import DETECTORS, OWN_DETECTORS
from anchorscope.cli.completion import several_of
from anchorscope.cli.help_texts import OUTPUT, AsJson, Quiet, in_panel
from anchorscope.cli.terminal import emit_json, listener, loading, say, user_errors

EXAMPLES = (
    (
        "a run that keeps what detectors read",
        "anchorscope run --limit 600 --keep states,states-cut,detection --out runs/d",
    ),
    ("fit, compare, save", "anchorscope detect runs/d --out runs/d-detectors"),
    ("only fit and save one", "anchorscope detect runs/d --fit-only --bundles anchor --out runs/d-anchor"),
)
"""What people type first, and what for."""
_what, _stats, _running = in_panel("Detectors"), in_panel("Statistics"), in_panel("Running")
_output = in_panel(OUTPUT)
_STOPPED = "stopped; nothing half made was kept, the same command starts again"
_NAMES = ", ".join([*(name for name, one in OWN_DETECTORS.items() if one.variant_of is None), *DETECTORS.plugins])
_SAVED = [*(name for name, one in OWN_DETECTORS.items() if one.saved), *DETECTORS.plugins]
_DETECTORS = f"Detectors to compare, names with commas; all where not given: {_NAMES}, and their controls."
_BUNDLES = (
    "Detectors to save, names with commas; where not given, of confidence, probe, probe+confidence, counterfactual and "
    "anchor those that the runs allow."
)
_RISK = "Shares of false answers among the accepted ones that saved detectors have thresholds for; the first leads."


def detect(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="Finished runs of one model that kept states (--keep states,states-cut,"
            "detection); a run under another prompt is a target.",
        ),
    ],
    out: Annotated[str, _output(help="The folder for tables, figures, bundles and the page.")],
    detectors: Annotated[str, _what(help=_DETECTORS, autocompletion=several_of(DETECTORS))] = "",
    bundles: Annotated[str | None, _what(help=_BUNDLES, show_default=False, autocompletion=several_of(_SAVED))] = None,
    fit_only: Annotated[
        bool, _what("--fit-only", help="Compare nothing: fit and save detectors, each as a folder in --out.")
    ] = False,
    folds: Annotated[int, _stats(help="Outer folds.")] = 5,
    seeds: Annotated[int, _stats(help="Fold seeds: everything is fitted anew for each.")] = 5,
    tosses: Annotated[int, _stats(help="Fits on tossed labels, the control that must give 0.5.")] = 20,
    resamples: Annotated[int, _stats(help="Bootstrap resamples behind every interval.")] = 1000,
    risk: Annotated[str, _stats(help=_RISK)] = "0.1,0.05,0.2,0.3",
    seed: Annotated[int, _stats(help="Seed of every draw.")] = 0,
    device: Annotated[str, _running(help="auto, cpu, cuda or cuda:N: where detectors are fitted.")] = "auto",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fit hallucination detectors on what runs kept: which is worth its passes, and does it survive on other data?"""
    with user_errors(stopped=_STOPPED):
        with loading("polars", quiet):
            from anchorscope.detecting.inputs import DetectOptions, open_runs
            from anchorscope.recipe import named_folder
        options = DetectOptions(
            _names(detectors),
            None if bundles is None else _names(bundles),
            folds,
            seeds,
            tosses,
            resamples,
            _numbers(risk),
            seed,
            device,
            fit_only,
        )
        folder = named_folder(out)
        open_runs(runs)  # what they lack is reported before torch is imported
        with loading("torch", quiet):
            from anchorscope.detecting.detect import detect as detect_runs
        made = detect_runs(runs, out=folder, progress=listener(quiet), **vars(options))
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
