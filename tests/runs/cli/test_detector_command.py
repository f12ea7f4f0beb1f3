"""`anchorscope detector`: the card and the exported vector."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from anchorscope.detectors.bundle import Card, read_bundle, write_bundle
from anchorscope.detectors.detector import Detector
from anchorscope.models.loading import load as load_model
from commands import invoke
from detector_cases import added, probe, trained_on
from repo import ROOT
from whole_runs import files_of

QUALITY = {
    "detector": "probe",
    "train": "a|b",
    "test": "popqa",
    "metric": "auroc",
    "prevalence": "balanced",
    "value": 0.71234,
    "ci_low": 0.65,
    "ci_high": 0.77,
    "n": 120,
    "passes": 1,
}


@pytest.fixture(scope="module")
def bundle(
    save_tiny: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    place = tmp_path_factory.mktemp("bundles") / "probe"
    card = Card(
        "made <b>up</b>",
        (QUALITY,),
        ("popqa",),
        ("knows nothing",),
        {"anchorscope": "0.1.0"},
    )
    write_bundle(
        place,
        trained_on(load_model(str(save_tiny("llama"))), fitted=probe(), card=card),
    )
    return place


run = partial(invoke, "detector")


def refused(*words: object) -> str:
    result = run(*words)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("error: ")
    assert result.stdout == ""
    return result.stderr.splitlines()[-1]


def test_the_card_says_what_the_bundle_does(bundle: Path, tmp_path: Path) -> None:
    result = run("card", bundle)
    assert result.exit_code == 0, result.stderr
    for text in (
        str(read_bundle(bundle).sha256),
        "made <b>up</b>",
        "knows nothing",
        "anchorscope 0.1.0",
        "called true, at most 20% wrong   70%, from probability 0.450 on",
        "called true, at most 5% wrong    nothing",
        "AUROC  ",
        "0.712 [0.650, 0.770] a|b → popqa, balanced",
    ):
        assert text in result.stdout, text
    write_bundle(tmp_path / "bare", replace(read_bundle(bundle), card=Card()))
    assert "nothing was measured" in run("card", tmp_path / "bare").stdout


def test_an_exported_probe_gives_the_score_through_the_reader_of_the_docs(
    bundle: Path, tmp_path: Path
) -> None:
    out = tmp_path / "probe"
    for _ in range(2):  # its own files are replaced
        result = run("export", bundle, "--out", out, "--json")
        assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["files"] == ["probe.json", "probe.safetensors"]
    (code,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "bundle-format.md").read_text(), re.S
    )
    names: dict[str, Any] = {}
    exec(code, names)
    detector = Detector.load(bundle)
    for pair in (
        ("Who wrote Dracula?", "Bram Stoker"),
        ("What is the capital of Peru?", "Lima"),
    ):
        wanted = detector.score(*pair).truth_probability
        assert names["truth_probability"](out, *pair) == pytest.approx(wanted, abs=1e-5)
    assert len(code.split("def ")[1].splitlines()) <= 20
    whole = replace(
        read_bundle(bundle), fitted=added((probe(), probe(("clean", "mlp", 2))))
    )
    write_bundle(tmp_path / "sum", whole)
    assert "is not one linear probe" in refused(
        "export", tmp_path / "sum", "--out", tmp_path / "none"
    )
    assert "is no bundle (it holds 'probe') and is not replaced" in refused(
        "export", bundle, "--out", tmp_path
    )
    assert not (tmp_path / "none").exists()


def theirs(out: Path, name: str, content: str = "mine") -> None:
    out.mkdir(exist_ok=True)
    (out / name).write_text(content)


HARM: dict[str, Callable[[Path], object]] = {
    "their own record": lambda out: theirs(out, "probe.json"),
    "their own weights": lambda out: theirs(out, "probe.safetensors"),
    "a record in our words": lambda out: theirs(
        out, "probe.json", '{"schema": "anchorscope-linear-probe"}'
    ),
    "a file": lambda out: out.write_text("mine"),
    "a link": lambda out: out.symlink_to("nowhere"),
}


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("harm", HARM)
def test_an_exported_probe_replaces_nothing_but_an_exported_probe(
    bundle: Path, tmp_path: Path, harm: str, earlier: bool
) -> None:
    out = tmp_path / "probe"
    if earlier and not harm.startswith("a "):
        assert run("export", bundle, "--out", out).exit_code == 0
    elif earlier:  # a record of ours whose weights are not those that it names
        theirs(out, "probe.json", (bundle / "detector.json").read_text())
        theirs(out, "probe.safetensors")
        harm = "their own weights"
    HARM[harm](out)
    before = files_of(tmp_path)
    assert "is no bundle (" in refused("export", bundle, "--out", out)
    assert files_of(tmp_path) == before
    assert out.is_symlink() == (harm == "a link")
