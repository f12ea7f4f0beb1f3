"""Figures that helpers draw are the same as those that are drawn here, and none is missing when helpers fail."""

import os
import subprocess
import sys
import textwrap
import time
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


class Dot:
    """A figure that is drawn at once."""

    def __init__(self, name: str) -> None:
        self.name = name

    def save(self, folder: Path) -> None:
        (folder / self.name).write_text(f"drawn by {os.getpid()}")


def drawn_here(folder: Path) -> bool:
    """Whether two figures are reported and drawn, both by this process."""
    progress = Counted()
    parallel.save_all([Dot("first"), Dot("second")], folder, progress)  # type: ignore[list-item]
    wanted = f"drawn by {os.getpid()}"
    return progress.units == 2 and [(folder / name).read_text() for name in ("first", "second")] == [wanted] * 2


def test_helpers_draw_the_same(findings: Findings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Display] = [DeltaPChart.from_findings(findings), ProbeAucChart.from_findings(findings)]
    (tmp_path / "here").mkdir()
    figures[0].save(tmp_path / "here")
    (tmp_path / "helped").mkdir()
    monkeypatch.setattr(parallel, "_cores", lambda: 2)
    here: list[Display] = []
    own_save = DeltaPChart.save
    monkeypatch.setattr(DeltaPChart, "save", lambda self, folder: (here.append(self), own_save(self, folder))[1])
    progress = Counted()
    parallel.save_all(figures, tmp_path / "helped", progress)
    assert progress.units == 2
    assert here == []  # the helper's share: the last figure is drawn here
    files = {path.name for path in (tmp_path / "helped" / "figures").iterdir()}
    assert files == {f"{name}.{kind}" for name in ("delta_p", "probe_auc") for kind in KINDS}
    for kind in KINDS:
        mine, theirs = (tmp_path / who / "figures" / f"delta_p.{kind}" for who in ("here", "helped"))
        assert mine.read_bytes() == theirs.read_bytes()


def test_what_a_helper_cannot_draw_is_drawn_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_cores", lambda: 2)
    monkeypatch.setattr(parallel, "_CODE", "raise SystemExit(3)")
    assert drawn_here(tmp_path)


class Sleeper:
    """A figure that takes for ever, and says who draws it."""

    def save(self, folder: Path) -> None:
        (folder / "drawn-by").write_text(str(os.getpid()))
        time.sleep(600)


def test_a_worker_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from pathlib import Path
        from test_report_parallel import Sleeper
        from anchorscope.report.charts import parallel

        worker = parallel._worker([Sleeper()], Path({str(tmp_path)!r}))
        while not Path({str(tmp_path / "drawn-by")!r}).exists() or not Path({str(tmp_path / "drawn-by")!r}).read_text():
            pass
        print("drawing", flush=True)
        worker.wait()
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"drawing\n"
        worker = int((tmp_path / "drawn-by").read_text())
        assert is_alive(worker)
        starter.kill()
    until = time.monotonic() + 60
    while is_alive(worker) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_alive(worker)


def is_alive(number: int) -> bool:
    """Whether a process is at work; one that has ended and that nobody has asked for is not."""
    try:
        return ") Z " not in Path(f"/proc/{number}/stat").read_text()
    except OSError:
        return False


def test_no_worker_outlives_a_call_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    start = parallel._worker
    monkeypatch.setattr(parallel, "_cores", lambda: 2)
    monkeypatch.setattr(parallel, "_worker", lambda *about: started.append(start(*about)) or started[-1])

    class Broken(Sleeper):
        def save(self, folder: Path) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        parallel.save_all([Sleeper(), Broken()], tmp_path, Silent())  # type: ignore[list-item]
    assert [one.poll() is not None for one in started] == [True]
