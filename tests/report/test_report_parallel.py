"""Figures that helpers draw are the same as those that are drawn here, and none is missing when helpers fail."""

import sys
from pathlib import Path

import pytest

from anchorscope.progress import Silent
from anchorscope.report.charts import parallel
from anchorscope.report.charts.auc_charts import ProbeAucChart
from anchorscope.report.charts.delta_p import DeltaPChart
from anchorscope.report.charts.display import Display
from anchorscope.report.findings import Findings

KINDS = ("png", "svg", "pdf", "csv")


class Counted(Silent):
    """Counts what is reported."""

    def __init__(self) -> None:
        self.units = 0

    def advance(self, units: int) -> None:
        self.units += units


def drawn(findings: Findings, folder: Path) -> tuple[int, dict[str, bytes]]:
    """How many figures were reported, and every file."""
    figures: list[Display] = [DeltaPChart.from_findings(findings), ProbeAucChart.from_findings(findings)]
    progress = Counted()
    parallel.save_all(figures, folder, progress)
    return progress.units, {path.name: path.read_bytes() for path in (folder / "figures").iterdir()}


def test_helpers_draw_the_same(
    findings: Findings, written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "_cores", lambda: 2)
    here: list[Display] = []
    own_save = DeltaPChart.save
    monkeypatch.setattr(DeltaPChart, "save", lambda self, folder: (here.append(self), own_save(self, folder))[1])
    count, files = drawn(findings, tmp_path)
    assert count == 2
    assert here == []  # the helper's share: the last figure is drawn here
    for name in ("delta_p", "probe_auc"):
        for kind in KINDS:
            assert files[f"{name}.{kind}"] == (written / "figures" / f"{name}.{kind}").read_bytes()


def test_what_a_helper_cannot_draw_is_drawn_here(
    findings: Findings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "_cores", lambda: 2)
    monkeypatch.setattr(parallel, "_CODE", "raise SystemExit(3)")
    count, files = drawn(findings, tmp_path)
    assert count == 2
    assert set(files) == {f"{name}.{kind}" for name in ("delta_p", "probe_auc") for kind in KINDS}


def test_without_a_second_interpreter_all_is_drawn_here(
    findings: Findings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "")
    count, files = drawn(findings, tmp_path)
    assert count == 2
    assert len(files) == 2 * len(KINDS)


@pytest.mark.parametrize(("asked", "most"), [("1", 1), ("3", 3), ("", 8), ("many", 8), ("0", 8)])
def test_no_more_processes_than_the_user_allows(monkeypatch: pytest.MonkeyPatch, asked: str, most: int) -> None:
    monkeypatch.setattr(parallel.os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert parallel._cores() == most
