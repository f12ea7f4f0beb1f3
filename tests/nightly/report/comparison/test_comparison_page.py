"""The page of a comparison: what it says follows from the runs, and nobody's text becomes its code."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from anchorscope.progress import Silent
from anchorscope.report.answer_card import answer_card
from anchorscope.report.charts.live_chart import OWN
from anchorscope.report.comparison import comparison_page
from anchorscope.report.comparison.across_models import read_across
from anchorscope.report.comparison.compared import Compared, Flag
from anchorscope.report.comparison.comparison_page import comparison_data
from anchorscope.report.comparison.comparison_text import (
    NOT_MEASURED,
    answer,
    cards_table,
    groups_table,
    models_table,
    setting,
    shares_table,
    trends_table,
)
from anchorscope.report.comparison.control_checks import (
    FailedControl,
    controls_sentence,
    controls_table,
    failed_controls,
)
from anchorscope.report.earlier_readings.claims import CLAIMS
from anchorscope.report.findings import Findings
from anchorscope.report.statements import read
from anchorscope.report.wording import spanned
from compared_runs import model_findings, with_random
from report_shares import World, with_shares

MARKUP = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"


BOTH = ("popqa", "nq")


def run(
    model: str = "Small", share: float = 0.4, *, datasets: tuple[str, ...] = BOTH, parameters: int = 10**8, **world: Any
) -> Findings:
    found = with_random(model_findings(model, layers=30, datasets=datasets, parameters=parameters))
    return with_shares(found, World(share=share, **world))


@pytest.fixture(scope="module")
def compared() -> Compared:
    """Two runs with all that there is, of which the larger one fails a control at some layers."""
    spoilt = {("random", layer): 0.5 for layer in range(24, 30)}
    large = run("Large", 0.7, parameters=10**9, datasets=("popqa",), spoilt=spoilt)
    flags = (Flag("seed: 0 in Small; 1 in Large", "drawn anew", False), Flag("site: a in Small", "elsewhere", True))
    return Compared((run(), large), ("a", "b"), flags=flags, command="anchorscope compare 'my a' b --out both")


@pytest.fixture(scope="module")
def pages(compared: Compared, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return written(compared, tmp_path_factory.mktemp("pages"), claims=True)


def written(compared: Compared, folder: Path, claims: bool = False) -> dict[str, str]:
    """Both pages without figures: drawing takes the time and has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison_page, "save_all", lambda *_: None)
        comparison_page.write_comparison(compared, folder, Silent(), claims)
    return {kind: (folder / f"report.{kind}").read_text(encoding="utf-8") for kind in ("html", "md")}


def answered(*all_runs: Findings) -> str:
    """The answer; without draws, as those of the ΔP curves take the time."""
    runs = tuple(replace(one, curve_samples=one.curve_samples.head(0)) for one in all_runs)
    cards = {one.model: answer_card(one, read(one)) for one in runs}
    return answer(Compared(runs, ("",) * len(runs)), read_across(runs), cards)


def failed(*runs: Findings) -> list[FailedControl]:
    return failed_controls(Compared(runs, ("",) * len(runs)), {one.model: read(one) for one in runs})


def test_both_pages_tell_the_same_in_the_same_order(pages: dict[str, str]) -> None:
    for page in pages.values():
        told = (page.partition("<main")[2] or page).replace("&#39;", "'")
        places = [
            told.lower().find(said.lower())
            for said in (
                "Small and Large: question or answer?",
                "of the probe's evidence needs the question's key words",
                "A control fails",
                "differ in 2 things",
                "How much of the evidence needs the question",
                "The paper's ΔP",
                "Controls that fail, or may",
                "What changes with size",
                "Differences between the runs",
                "drawn anew",
                "Refused unless asked for",
                "What earlier readings of such charts claimed",
                "Repeat it",
                "--out both",
                "comparison.json",
            )
        ]
        assert -1 not in places
        assert places == sorted(places)
    assert "{{" not in pages["html"] + pages["md"]
    assert "anchorscope compare 'my a' b --out both" in pages["md"]  # ready to be pasted


def test_claims_are_there_where_they_are_asked_for(compared: Compared, pages: dict[str, str], tmp_path: Path) -> None:
    assert 'id="claims"' in pages["html"]
    without = written(compared, tmp_path)
    assert not any("earlier readings" in page.lower() for page in without.values())
    observations = json.loads((tmp_path / "observations.json").read_text(encoding="utf-8"))
    assert {one["scope"] for one in observations} == {"models", "run"}


def test_one_run_has_its_claims_and_no_trends(compared: Compared, tmp_path: Path) -> None:
    alone = replace(compared, runs=compared.runs[:1], folders=("a",), flags=())
    page = written(alone, tmp_path, claims=True)["html"]
    assert all(claim.text.replace("'", "&#39;") in page for claim in CLAIMS)
    assert 'id="size"' not in page
    assert 'id="differences"' not in page
    assert "40\u00a0% of the probe" in page


def test_runs_that_did_not_measure_the_share_have_the_page_without(compared: Compared, tmp_path: Path) -> None:
    sizes = {"a": 10**8, "b": 10**9}
    old = tuple(model_findings(name, datasets=("popqa",), parameters=size) for name, size in sizes.items())
    page = written(replace(compared, runs=old), tmp_path)["html"]
    assert NOT_MEASURED in page.replace("&#39;", "'")
    assert 'id="compare-share"' not in page
    assert "own controls were not measured in a and b" in page.replace("&#39;", "'")


def test_the_page_runs_its_own_script_and_loads_nothing(pages: dict[str, str]) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', pages["html"])
    assert policy is not None
    assert policy.group(1).startswith("default-src &#39;none&#39;")
    assert "script-src &#39;sha256-" in policy.group(1)
    assert not re.search(r'(?:src|href)="(?!data:|#)', pages["html"])


def test_names_with_markup_stay_text(compared: Compared, tmp_path: Path) -> None:
    odd = run(MARKUP, 0.4, datasets=("popqa",), random=0.5)
    folders, flag = (MARKUP, "b"), Flag(MARKUP, MARKUP, True)
    pages = written(replace(compared, runs=(odd, compared.runs[1]), folders=folders, flags=(flag,)), tmp_path, True)
    for page in pages.values():
        assert "<img" not in page.replace('<img alt="', "")
        assert "alert(2)</script>" not in page
        assert "&lt;img src=x" in page


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ((0.4, 0.7), "The share grows with size: +30 percentage points [22, 38]."),
        ((0.4, 0.46), "Whether it changes with size is undecided: +6 percentage points [−2, 14]."),
        ((0.7, 0.4), "The share falls with size: −30 percentage points [−38, −22]."),
        ((0.4, 0.7, 0.41), "It goes up and down with size: +1 percentage points [−7, 9]."),
    ],
)
def test_the_answer_says_how_the_share_changes(shares: Sequence[float], said: str) -> None:
    runs = [run(f"m{place}", share, parameters=10 ** (8 + place)) for place, share in enumerate(shares)]
    told = answered(*runs)
    assert told.endswith(said)
    first = "In the mean over PopQA and NQ, "
    assert told.startswith(f"{first}{100 * shares[0]:.0f}\u00a0% [")
    assert "of the probe's evidence needs the question's key words in m0 (random words: 8\u00a0%)" in told


def test_a_small_sure_change_is_hardly_one() -> None:
    small, large = run("a", 0.4, half=0.01), run("b", 0.42, half=0.01, parameters=10**9)
    assert answered(small, large).endswith("It hardly changes with size: +2 percentage points [1, 3].")


def test_datasets_that_go_other_ways_than_the_mean_are_named() -> None:
    def of(name: str, popqa: float, nq: float, parameters: int) -> Findings:
        return with_shares(run(name, parameters=parameters), World(share=popqa), World(share=nq))

    small = of("a", 0.3, 0.6, 10**8)
    told = answered(small, of("b", 0.6, 0.3, 10**9))
    assert told.endswith(". But it grows on PopQA (+30 [18, 41]) and it falls on NQ (−30 [−41, −18]).")
    assert answered(small, of("b", 0.9, 0.3, 10**9)).endswith(". But it falls on NQ (−30 [−41, −18]).")
    assert "But" not in answered(small, of("b", 0.6, 0.9, 10**9))


def test_where_nothing_can_be_compared_every_run_answers_for_itself() -> None:
    one, other = run("a", datasets=("popqa",)), run("b", 0.7, datasets=("nq",))
    told = answered(one, other)
    assert "a: About 40\u00a0% of the probe" in told
    assert "b: About 70\u00a0% of the probe" in told
    assert "b:" not in answered(one, replace(other, random_weights=True))


def test_a_failed_control_is_named_with_its_layers(compared: Compared) -> None:
    found = failed(*compared.runs)
    (one,) = [control for control in found if control.sure]
    assert (one.run, one.dataset, one.layers) == ("Large", "PopQA", tuple(range(24, 30)))
    assert (one.tested, one.at_tested) == (17, False)
    assert controls_sentence(compared, found).startswith(
        "A control fails: random words take or give more than a quarter of the share at other layers in Large "
        "(PopQA: layers 24–29)."
    )
    assert controls_table(found).rows[0] == (
        "✗ fails",
        "Large",
        "Random words take or give more than a quarter of the share",
        "PopQA: layers 24–29",
    )
    alone = controls_sentence(replace(compared, runs=compared.runs[1:]), found)
    assert "at other layers on PopQA: layers 24–29." in alone


def test_failures_of_one_kind_are_told_together_and_the_others_below(compared: Compared) -> None:
    bad, worse = (run(name, 0.7, random=0.5, permuted=0.4, spoilt={("none", 3): 0.6}) for name in ("Bad", "Worse"))
    found = failed(bad, worse)
    assert len(found) == 2 * 2 * 3  # runs, datasets, controls
    told = controls_sentence(compared, found)
    assert told.startswith(
        "12 controls fail: random words take or give more than a quarter of the share at the tested layer in Bad "
        "(PopQA and NQ) and Worse (PopQA and NQ); 8 more below."
    )
    rows = controls_table(found).rows
    assert len(rows) == 2 * 3
    assert rows[1][:3] == ("✗ fails", "Bad", "Permuted labels give a share")
    assert re.fullmatch(r"PopQA: layers \d+–29, tested 17 too; NQ: layers \d+–29, tested 17 too", rows[1][3])
    assert failed(replace(bad, random_weights=True)) == []


def test_passed_and_doubtful_controls_are_told_apart(compared: Compared) -> None:
    assert controls_sentence(compared, failed(run(random=0.02))) == "Every control stays within its limit."
    (one, *_) = found = failed(run(random=0.12, half=0.12, datasets=("popqa",)))
    assert not one.sure
    assert controls_sentence(compared, found).startswith("No control surely fails; ")
    assert controls_table(found).rows[0][0] == "? in doubt"


def test_tables_have_a_row_for_every_run_and_dataset(compared: Compared) -> None:
    assert [row[:2] for row in models_table(compared).rows] == [("Small", "a"), ("Large", "b")]
    for table in (groups_table(compared), shares_table(compared)):
        assert [row[:2] for row in table.rows] == [("PopQA", "Small"), ("PopQA", "Large"), ("NQ", "Small")]
        assert {len(row) for row in table.rows} == {len(table.head)}
    assert groups_table(compared).rows[0][8] == "−52.0 [−54.5, −49.5]"
    assert shares_table(compared).rows[1][2:4] == ("17", "0.70 [0.62, 0.78]")
    old = replace(compared, runs=(model_findings("Old", datasets=("popqa",)),))
    assert shares_table(old).rows[0][3] == "–"


def test_cards_stand_side_by_side(compared: Compared) -> None:
    cards = {one.model: answer_card(one, read(one)) for one in compared.runs}
    table = cards_table(compared, cards)
    assert table.head == ("", "Small", "Large")
    assert [row[0] for row in table.rows] == [tile.label for tile in cards["Small"].tiles]
    assert table.rows[1][2] == "✓ 70\u00a0% [62, 78]"
    assert table.rows[3][2].startswith("✗")


def test_trends_have_a_column_per_run(compared: Compared) -> None:
    across = [one for one in read_across(compared.runs) if one["assignment"] is None]
    table = trends_table(across)
    assert table.head == ("PopQA", "a change?", "change", "unit", "Small", "Large")
    assert table.rows[0] == (
        "The question share at the tested layer",
        "holds",
        "0.30 [0.18, 0.41]",
        "of the evidence",
        "0.40 [0.32, 0.48]",
        "0.70 [0.62, 0.78]",
    )
    several = trends_table([*across, across[0] | {"dataset": "nq"}])
    assert (several.head[:2], several.rows[-1][0], len(several.rows)) == (("on", ""), "NQ", len(across) + 1)
    assert trends_table([]).rows == ()


def test_what_a_reader_has_to_know_is_said(compared: Compared) -> None:
    told = setting(compared)
    assert "Small (100\u00a0M, 30 layers) and Large (1.0\u00a0B, 30 layers)" in told
    assert told.endswith("The runs differ in 2 things beside the model.")
    noise = replace(compared, runs=(compared.runs[0], replace(compared.runs[1], random_weights=True)), flags=())
    assert setting(noise).endswith("Random weights, so that the panel is noise: Large.")


def test_a_span_is_one_number_where_all_are_alike() -> None:
    assert spanned([3.0, 1.0, float("nan"), 2.0], lambda value: f"{value:.0f}") == "1 to 3"
    assert spanned([1.1, 0.9], lambda value: f"{value:.0f}") == "1"
    assert spanned([], str) == ""


def _options(chart: dict, name: str) -> list[str]:
    [menu] = [menu for menu in chart["menus"] if menu["name"] == name]
    return [value for value, *_ in menu["options"]]


def test_the_menu_holds_what_all_runs_have(compared: Compared) -> None:
    data = comparison_data(compared)
    curves, shares = (data["views"][name] for name in ("compare-view", "compare-share"))
    assert _options(curves, "rule") == ["plain", "corrected", "cross-fitted"]
    entries = {look["entry"] for look in shares["looks"].values() if look.get("quiet")}
    assert {name[:12] for name in entries} == {"Random words", "Nothing cut ", "Labels permu"}
    assert {menu["name"]: menu["start"] for menu in curves["menus"]} == {
        "rule": "plain",
        "truth": "all",
        "site": "mlp",
        "position": "final",
        "cut": "knockout",
    }
    for chart in (curves, shares):
        assert [panel["layers"] for panel in chart["panels"]] == [30, 30]
        second = {chart["looks"][line[0]]["about"]["dataset"] for line in chart["panels"][1]["lines"]}
        assert second == {"popqa"}
    json.dumps(data, allow_nan=False)


def test_a_rule_that_one_run_lacks_is_not_offered(compared: Compared) -> None:
    lacking = replace(compared.runs[1], curves=compared.runs[1].curves.filter(pl.col("assignment") == "plain"))
    data = comparison_data(replace(compared, runs=(compared.runs[0], lacking)))
    assert _options(data["views"]["compare-view"], "rule") == ["plain"]


def test_runs_read_at_other_sites_start_at_their_own(compared: Compared) -> None:
    elsewhere = {"curves": compared.runs[1].curves, "question_share": compared.runs[1].question_share}
    moved = {name: table.with_columns(site=pl.lit("residual")) for name, table in elsewhere.items()}
    other = replace(compared.runs[1], site="residual", **moved)
    data = comparison_data(replace(compared, runs=(compared.runs[0], other)))
    for chart in data["views"].values():
        assert _options(chart, "site") == [OWN]
        assert all(panel["lines"] for panel in chart["panels"])
