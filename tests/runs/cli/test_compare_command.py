"""`anchorscope compare` at the terminal: one JSON object, warnings on standard error, mistakes in one line."""

import json
from pathlib import Path

import pytest

from anchorscope.report import comparison
from anchorscope.report.comparison import CLAIMS
from commands import invoke
from compared_runs import model_findings, write_run


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two runs that differ in their seeds; figures are left out, they take the time and have tests of their own."""
    monkeypatch.setattr(comparison, "save_all", lambda *_: None)
    sizes = {"Small": 10**8, "Large": 10**9}
    made = [
        model_findings(name, parameters=size, datasets=("popqa",))
        for name, size in sizes.items()
    ]
    return [
        str(write_run(tmp_path / one.model, one, seed=seed))
        for seed, one in enumerate(made)
    ]


def test_one_object_for_programs_and_warnings_for_people(
    runs: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    result = invoke("compare", *runs, "--out", str(out), "--json")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert told["out"] == str(out)
    assert [one["run"] for one in told["runs"]] == ["Small", "Large"]
    assert [one["name"] for one in told["differences"]] == ["seed"]
    assert told["readings"] == json.loads(
        (out / "observations.json").read_text(encoding="utf-8")
    )
    assert Path(told["report"]).is_file()
    assert all(
        sentence in (out / "report.md").read_text(encoding="utf-8")
        for sentence in told["answer"]
    )
    assert (
        "warning: seed: 0 in Small; 1 in Large. Questions, folds and resamples were drawn again.\n"
        in result.stderr
    )


def test_people_are_told_where_the_chart_is_and_quiet_is_quiet(
    runs: list[str], tmp_path: Path
) -> None:
    result = invoke("compare", *runs[::-1], "--out", str(tmp_path / "a"))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.endswith(f"report: {tmp_path / 'a' / 'report.html'}\n")
    assert "did not measure its parts" in result.stderr
    assert (tmp_path / "a" / "report.md").read_text().startswith("# Small and Large")
    silent = invoke("compare", *runs, "--out", str(tmp_path / "b"), "--quiet")
    assert (silent.exit_code, silent.stdout, silent.stderr) == (0, "", "")


def test_mistakes_are_one_line(runs: list[str], tmp_path: Path) -> None:
    other = model_findings("Other", datasets=("popqa",))
    elsewhere = str(write_run(tmp_path / "other", other, site="residual"))
    out = ["--out", str(tmp_path / "out")]
    for arguments, message in (
        (
            [*runs, elsewhere, *out],
            "error: These runs are not comparable: site: mlp in Small and Large",
        ),
        (
            [*runs, *out, "--allow", "sight"],
            "error: Unknown difference 'sight'; allowed: all, balance",
        ),
        (
            [*runs, *out, "--names", "a"],
            "error: --names takes one name per run, in the order of the runs",
        ),
        (
            [*runs, *out, "--names", "a, a"],
            "error: --names takes one name per run, in the order of the runs",
        ),
        (runs, "error: Missing option '--out'."),
    ):
        result = invoke("compare", *arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(message), result.stderr
        assert result.stderr.count("\n") == 1
        assert not (tmp_path / "out").exists()


def test_names_and_claims(runs: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = invoke(
        "compare", *runs, "--out", str(out), "--names", "one, two", "--claims", "--json"
    )
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert [one["run"] for one in told["runs"]] == ["one", "two"]
    assert [one["model"]["name"] for one in told["runs"]] == ["Small", "Large"]
    assert sum(one["scope"] == "claim" for one in told["readings"]) == len(CLAIMS)
    assert (out / "report.md").read_text().startswith("# one and two")
    alone = invoke("compare", runs[0], "--claims", "--out", str(tmp_path / "alone"))
    assert alone.exit_code == 0, alone.stderr


def test_a_name_cannot_command_the_terminal(runs: list[str], tmp_path: Path) -> None:
    odd = model_findings("odd\x1b[31m", datasets=("popqa",))
    result = invoke(
        "compare",
        runs[0],
        str(write_run(tmp_path / "odd", odd, seed=9)),
        "--out",
        str(tmp_path / "out"),
    )
    assert result.exit_code == 0, result.stderr
    assert "seed: 0 in Small" in result.stderr
    assert "\x1b" not in result.stderr
