"""`anchorscope view`: what is found and told, where its page is written, and what the page never replaces."""

import json
import os
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from anchorscope.artefacts.run_folder import open_run
from anchorscope.artefacts.sealed_folder import sealed
from anchorscope.artefacts.step import StepResult, records
from anchorscope.files import locked
from anchorscope.finished import open_finished
from anchorscope.report.answer_card import answer_card
from anchorscope.report.checks import read
from anchorscope.report.findings import nested_auc
from anchorscope.viewing import PAGE
from commands import invoke
from compared_runs import write_run
from report_shares import run_with_shares
from report_synthetic import make_findings


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one of everything, and with links that lead out of it."""
    home = tmp_path_factory.mktemp("home")
    runs = home / "runs"
    older = write_run(runs / "older", make_findings(("popqa",)))
    findings = run_with_shares(datasets=("popqa",))
    folder = str(runs / "deep" / "new & <b>")
    card = answer_card(replace(findings, folder=folder), read(findings))
    newer = write_run(
        runs / "deep" / "new & <b>", findings, answer=json.dumps(card.record())
    )
    (newer / "report.html").write_text("<!doctype html><title>the report</title>")
    elsewhere = write_run(home / "elsewhere", make_findings(("popqa",)))
    (elsewhere / "report.html").write_text("<!doctype html><title>private</title>")
    (runs / "linked").symlink_to(elsewhere)
    (runs / "lent").mkdir()
    (runs / "lent" / "comparison.json").symlink_to(runs / "both" / "comparison.json")
    (older / "report.html").symlink_to(elsewhere / "report.html")
    with open_run(runs / "half") as folder:
        StepResult(folder, "popqa/answers", (), records(list[int]), lambda: [1]).value  # noqa: B018
        folder.write_recipe('model = "small"\ndatasets = ["popqa"]\n')
    for name, content in {
        "both/comparison.json": {"runs": [{"run": "a"}, {"run": "b"}]},
        "det/detection.json": {
            "model": "small",
            "bundles": ["auto"],
            "trained_on": ["popqa"],
            "warnings": ["few"],
        },
        "broken/comparison.json": [],
    }.items():
        (runs / name).parent.mkdir()
        (runs / name).write_text(json.dumps(sealed(content) if content else content))
    for age, folder in enumerate(
        (newer, runs / "both", runs / "det", runs / "half", older)
    ):
        for file in folder.glob("*.json"):
            os.utime(file, (1_700_000_000 - 1000 * age,) * 2)
    return runs


ask = partial(invoke, "view")


def test_everything_is_listed_newest_first_with_its_numbers(runs: Path) -> None:
    listed = json.loads(ask(runs, "--json").stdout)
    assert listed["folder"] == str(runs)
    assert listed["page"] == str(runs / PAGE)
    found = {one["name"]: one for one in listed["found"]}
    lent = found.pop("lent")
    assert (lent["state"], lent["model"]) == ("unreadable", "")
    assert list(found)[1:] == [
        "deep/new & <b>",
        "both",
        "det",
        "half",
        "older",
    ]  # the broken one was just made
    new = found["deep/new & <b>"]
    own = open_finished(runs / "deep" / "new & <b>")
    assert (new["kind"], new["state"]) == ("run", "finished")
    assert (new["model"], new["datasets"]) == (own.findings.model, ["PopQA"])
    auc = nested_auc(own.findings, "popqa").value
    assert new["auc"] == {"PopQA": pytest.approx(auc)}
    assert new["trust"] == {
        "verdict": own.card.trust.verdict,
        "reason": own.card.trust.reason,
    }
    assert found["older"]["about"] == "without answer.json"
    assert found["both"]["model"] == "a, b"
    assert (found["det"]["model"], found["det"]["datasets"]) == ("small", ["PopQA"])
    assert found["broken"]["state"] == "unreadable"


def test_a_stopped_run_says_what_resumes_it_and_a_running_one_does_not(
    runs: Path,
) -> None:
    def half() -> dict[str, object]:
        found = json.loads(ask(runs, "--json").stdout)["found"]
        return next(one for one in found if one["name"] == "half")

    stopped = half()
    assert (stopped["state"], stopped["about"]) == ("stopped", "1 step done")
    place = runs / "half"
    command = f"anchorscope run {place / 'recipe.toml'} --out {place}"
    assert stopped["command"] == command
    assert command in (runs / PAGE).read_text()
    with locked(place):
        running = half()
    assert (running["state"], running["command"]) == ("running", None)
    assert command not in (runs / PAGE).read_text()


def test_links_are_relative_and_lead_nowhere_else(runs: Path, tmp_path: Path) -> None:
    address = "deep/new%20%26%20%3Cb%3E/report.html"
    assert ask(runs, "--json").exit_code == 0
    written = (runs / PAGE).read_text()
    assert re.findall('href="([^#"]*)"', written) == [address]
    assert "new &amp; &lt;b&gt;" in written
    assert "<b>" not in written
    page = tmp_path / "index.html"
    assert ask(runs, "--json", "--out", page).exit_code == 0
    (found,) = re.findall('href="([^#"]*)"', page.read_text())
    assert found == f"{os.path.relpath(runs, tmp_path)}/{address}"


def test_only_a_page_that_is_wholly_ours_is_replaced(
    runs: Path, tmp_path: Path
) -> None:
    page = tmp_path / "index.html"
    for _ in range(2):
        assert ask(runs, "--out", page, "--no-browser").exit_code == 0
    with page.open("a") as edited:
        edited.write("my notes")
    (tmp_path / "link.html").symlink_to(runs / PAGE)
    for place in (page, tmp_path / "link.html", tmp_path):
        assert "was not written by anchorscope view" in mistake(runs, "--out", place)
    assert page.read_text().endswith("my notes")
    assert "cannot be written" in mistake(runs, "--out", "/proc/index.html")
    one = runs / "both"
    assert "name the folder around it" in mistake(one)
    assert not (one / PAGE).exists()
    assert ask(one, "--out", tmp_path / "one.html", "--no-browser").exit_code == 0


def test_a_name_that_hides_something_is_in_no_command(tmp_path: Path) -> None:
    findings = run_with_shares(datasets=("popqa",))
    card = json.dumps(answer_card(findings, read(findings)).record())
    hidden = os.fsdecode(b"no \xff text")
    plain = write_run(tmp_path / "plain", findings, answer=card)
    for name in ("escape\x1b[201~", "turned\u202eround", hidden):
        shutil.copytree(plain, tmp_path / name)
    assert ask(tmp_path, "--json").exit_code == 0
    ticked = re.findall('checkbox" value="([^"]*)"', (tmp_path / PAGE).read_text())
    assert ticked == [str(plain)]


def mistake(*arguments: object) -> str:
    result = ask(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    return str(line.removeprefix("error: "))


def test_mistakes(runs: Path, tmp_path: Path) -> None:
    assert mistake(tmp_path / "none").startswith("There is no folder")
    assert "There is no run below" in mistake(tmp_path, "--no-browser")
    assert "There is no run below" in mistake(tmp_path, "--json")
    assert "anchorscope run --limit 500 --out" in mistake(tmp_path)
    assert "The folder's name is empty" in mistake("")
    assert mistake(runs, "--port", "8642").startswith("view --port is gone: ")
    assert not (tmp_path / PAGE).exists()
