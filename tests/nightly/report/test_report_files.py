"""What is written: every file, with nothing in it that would load or differ from what is drawn."""

import base64
import hashlib
import html
import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anchorscope.report
from anchorscope.errors import UserError
from anchorscope.report.charts import delta_p_chart, figure_named
from anchorscope.report.page import SCRIPTS, embedded_json, joined_script
from anchorscope.report.palette import display_name
from anchorscope.report.run_page import bibtex, methods_paragraph, write_all
from repo import ROOT
from report_shares import run_with_shares

FOLDER = Path(anchorscope.report.__file__).parent / "scripts"
SVG_NAME = "http://www.w3.org/2000/svg"
FIGURES = ("evidence_parts", "delta_p", "probe_auc")


@pytest.fixture(scope="module")
def findings():
    return run_with_shares(datasets=("popqa", "triviaqa"))


@pytest.fixture(scope="module")
def written(findings, tmp_path_factory) -> Path:
    """One report for all tests here: drawing is the slow part."""
    folder = tmp_path_factory.mktemp("report")
    write_all(findings, folder)
    return folder


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_its_numbers_beside_it(written, name):
    assert (written / "figures" / f"{name}.svg").read_bytes().startswith(b"<?xml")
    assert pl.read_csv(written / "figures" / f"{name}.csv").height > 0
    for kind, head in (
        {"png": b"\x89PNG", "pdf": b"%PDF"}.items() if name == "delta_p" else ()
    ):
        assert (written / "figures" / f"{name}.{kind}").read_bytes().startswith(head)


def test_the_csv_is_what_is_drawn_and_what_the_page_shows(findings, written):
    saved = pl.read_csv(written / "figures" / "delta_p.csv")
    figure = delta_p_chart(findings).plot()
    (axes,) = figure.axes
    lines = [
        np.asarray(line.get_ydata())
        for line in axes.lines
        if len(line.get_xdata()) == findings.n_layers
    ]
    series = [
        rows.sort("layer")
        for _, rows in saved.group_by("intervention", "dataset", "group")
    ]
    # two datasets × two groups, knockout and random
    assert len(lines) == len(series) == 8
    page = (written / "report.html").read_text(encoding="utf-8")
    [text] = re.findall(r'id="figure-values">(.*?)</script>', page, flags=re.DOTALL)
    [panel] = json.loads(text)["delta_p"]
    shown = {curve["name"]: curve for curve in panel["curves"]}
    assert len(shown) == 8
    for rows in series:
        values = rows["delta_p"].to_numpy()
        assert any(np.array_equal(values, line) for line in lines)
        about = rows.row(0, named=True)
        if about["intervention"] == "knockout":
            curve = shown[f"{about['group']} ({display_name(about['dataset'])})"]
            for key, column in {
                "y": "delta_p",
                "low": "ci_low",
                "high": "ci_high",
            }.items():
                assert curve[key] == pytest.approx(rows[column].to_list(), rel=1e-3)


def test_a_figure_of_some_datasets_in_a_wanted_size(findings, tmp_path):
    chart = figure_named(findings, "delta_p", ["triviaqa"], (3.5, 3.0))
    assert chart.plot().get_size_inches().tolist() == pytest.approx([3.5, 3.0])
    assert set(chart.data["dataset"]) == {"triviaqa"}
    for kind in ("svg", "pdf", "png", "csv"):
        chart.write(tmp_path / f"chart.{kind}")
        assert (tmp_path / f"chart.{kind}").stat().st_size > 500
    for wrong, words in (
        (lambda: figure_named(findings, "delta"), "Unknown figure"),
        (lambda: figure_named(findings, "delta_p", ["nobody"]), "Unknown dataset"),
        (lambda: figure_named(findings, "probe_auc", size=(5.0, 4.0)), "takes a size"),
        (lambda: figure_named(findings, "delta_p", size=(1.0, 1.0)), "no room"),
        (lambda: chart.write(tmp_path / "chart.gif"), "end the name with"),
        (lambda: chart.write(tmp_path / "none" / "chart.svg"), "no folder"),
    ):
        with pytest.raises(UserError, match=words):
            wrong()


def test_same_numbers_same_bytes(tmp_path, findings, written):
    delta_p_chart(findings).save(tmp_path)
    for kind in ("png", "svg", "pdf", "csv"):
        first, second = (
            folder / "figures" / f"delta_p.{kind}" for folder in (written, tmp_path)
        )
        assert first.read_bytes() == second.read_bytes()


def test_the_page_loads_nothing(written):
    page = (written / "report.html").read_text(encoding="utf-8").replace(SVG_NAME, "")
    assert not re.search(r"https?://|//cdn|<link|@import|url\(", page)
    assert re.findall(r'src="(?!data:)', page) == []
    assert page.count("data:image/svg+xml;base64,") == len(FIGURES)


def test_the_page_allows_one_script_and_it_is_ours(written):
    page = (written / "report.html").read_text(encoding="utf-8")
    [script] = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    assert script == joined_script(SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    [policy] = re.findall(
        r'http-equiv="Content-Security-Policy" content="([^"]*)"', page
    )
    assert html.unescape(policy) == (
        f"default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    )
    held = re.findall(r'<script type="application/json" id="([^"]*)">', page)
    assert held == ["item-data", "figure-values"]
    assert page.count("<script") == 3


@pytest.mark.parametrize(
    "path", sorted(FOLDER.glob("*.js")), ids=lambda path: path.name
)
def test_scripts_build_the_page_without_markup(path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(
        r"(inner|outer|Adjacent)HTML|document\.write|\beval\b|new Function|DOMParser",
        text,
    )
    assert "</script" not in text
    assert not re.search(
        r"\bfetch\(|XMLHttpRequest|\bimport\b|https?://", text.replace(SVG_NAME, "")
    )
    lines = text.splitlines()
    assert lines[0].startswith("/* "), "every file begins with its idea"
    assert len(lines) <= 300
    assert max(len(line) for line in lines) <= 120


def test_scripts_share_no_name():
    """They are joined into one: a second function of a name would silently take the first one's place."""
    texts = [(FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    declared = re.compile(r"^(?:async )?(?:function|const|let) (\w+)", re.MULTILINE)
    names = [name for text in texts for name in declared.findall(text)]
    assert sorted(names) == sorted(set(names))


@given(st.text())
def test_data_hold_no_letter_that_could_end_them(text):
    held = embedded_json({"text": text})
    assert not set(held) & set("<>&\u2028\u2029")
    assert json.loads(held) == {"text": text}


def test_the_page_carries_this_runs_numbers(written):
    for name in ("report.html", "report.md"):
        text = (written / name).read_text(encoding="utf-8")
        for wanted in ("Can I trust it?", "0.50 [", "anchorscope run"):
            assert wanted in text, (name, wanted)
        assert (
            "not available"
            not in text[
                : text.index("Methods</h2>" if name.endswith("html") else "## Methods")
            ]
        )
        assert "nan" not in re.sub(r"base64,[^\"]*|Yang, Nan", "", text).lower().split()
    page = (written / "report.html").read_text(encoding="utf-8")
    assert "14,267" in page


def test_the_methods_paragraph_cuts_in_the_right_direction_and_names_all_authors(
    findings,
):
    assert "from all later tokens to the question's key words" in methods_paragraph(
        findings
    )
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    authors = re.findall(r"family-names: (\w+), given-names: (\w+)", cited)
    assert len(authors) == 11
    assert all(f"{family}, {given}" in bibtex(findings) for family, given in authors)
