"""The notebook of examples/ runs from top to bottom and shows what it promises."""

import base64
import html
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import nbformat
from nbclient import NotebookClient

import anchorscope
from anchorscope.detectors.bundle import write_bundle
from anchorscope.detectors.verdict import VERDICTS
from anchorscope.models.loading import load as load_model
from detector_cases import probe, trained_on
from repo import ROOT
from whole_runs import SmallRun


def test_the_tour_runs_and_shows_card_charts_items_and_a_score(
    small_run: SmallRun, save_tiny: Callable[[str], Path], tmp_path: Path
) -> None:
    run = anchorscope.open_run(small_run.finished)
    lm = load_model(str(save_tiny("llama")))
    write_bundle(tmp_path / "bundle", trained_on(lm, fitted=probe()))
    tour = nbformat.read(ROOT / "examples" / "tour.ipynb", 4)
    nbformat.validate(tour)
    assert not any(
        cell.get("outputs") or cell.get("execution_count") for cell in tour.cells
    )
    (place,) = [
        at
        for at, cell in enumerate(tour.cells)
        if "parameters" in cell.metadata.get("tags", ())
    ]
    here = f"run_folder = {str(run.path)!r}\nbundle = {str(tmp_path / 'bundle')!r}"
    tour.cells.insert(place + 1, nbformat.v4.new_code_cell(here))
    tour.cells += [
        nbformat.v4.new_code_cell(text)
        for text in (PROGRESS, "anchorscope.open_run('nowhere')")
    ]
    tour.cells[-1].metadata["tags"] = ["raises-exception"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the libraries that run notebooks
        NotebookClient(
            tour, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
        ).execute()
    outputs = [cell.outputs for cell in tour.cells if cell.cell_type == "code"]
    (card,) = outputs[2]
    assert run.card.sentence in html.unescape(card["data"]["text/html"])
    (chart,) = outputs[3]
    assert base64.b64decode(chart["data"]["image/png"]).startswith(b"\x89PNG")
    (readings,), (items,) = outputs[4:6]
    assert "adds_to_confidence" in readings["data"]["text/plain"]
    assert "pathway" in items["data"]["text/plain"]
    (scored,) = outputs[6]  # and no warning of a library
    (verdict,) = re.findall(r"verdict='([^']+)'", scored["data"]["text/plain"])
    assert verdict in VERDICTS
    lines = "".join(part["text"] for part in outputs[7]).splitlines()
    assert lines == [
        "step 1 of 1: clean <states>  0/10",
        "clean <states>  5/10  50%  in 1 s",
    ]
    (error,) = outputs[8]
    assert error["traceback"] == [
        "UserError: 'nowhere' is not a finished run (no manifest.json); run it to its end first."
    ]


PROGRESS = """
from anchorscope.progress import PlannedStep
from anchorscope.screen import showing

with showing("auto") as listener:
    listener.plan([PlannedStep("d/clean", "items", 1.0)])
    listener.begin("d/clean")
    listener.start("clean <states>", 10)
    listener.advance(5)
    listener.finish()
    listener.done("d/clean")
"""
