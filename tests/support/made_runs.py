"""A finished run of made-up numbers, with a report and a figure, for the tests of this folder."""

from pathlib import Path

from compared_runs import write_run
from report_shares import run_with_shares


def made_run(folder: Path) -> Path:
    write_run(
        folder, run_with_shares(datasets=("popqa",)), inputs={"popqa": "a1" * 32}, versions={"anchorscope": "0.1.0"}
    )
    (folder / "report.html").write_text("<p>report</p>", encoding="utf-8")
    (folder / "figures").mkdir()
    (folder / "figures" / "delta_p.png").write_bytes(b"png")
    return folder
