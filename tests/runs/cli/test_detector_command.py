"""`anchorscope detector`: the card, the exported vector, and bundles from a hub that runs on this machine."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from anchorscope.cli.main import app
from anchorscope.detectors.bundle import bundle_files, read_bundle, write_bundle
from anchorscope.detectors.detector import Detector
from anchorscope.detectors.trained import Card
from anchorscope.models.loading import load as load_model
from detector_cases import added, probe, trained_on
from hub_server import Hub, running_hub
from repo import ROOT

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
def bundle(save_tiny: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("bundles") / "probe"
    card = Card("made <b>up</b>", (QUALITY,), ("popqa",), ("knows nothing",), {"anchorscope": "0.1.0"})
    write_bundle(place, trained_on(load_model(str(save_tiny("llama"))), fitted=probe(), card=card))
    return place


@pytest.fixture(scope="module")
def server() -> Iterator[Hub]:
    with running_hub() as hub:
        yield hub


@pytest.fixture
def hub(server: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Hub:
    """An empty hub, and a cache of the client's own."""
    from huggingface_hub import constants

    server.repositories, server.asked = {}, []
    monkeypatch.setenv("HF_ENDPOINT", server.address)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return server


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["detector", *map(str, words)], prog_name="anchorscope")


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
        "accepted, at most 20% wrong   70%, from probability 0.450 on",
        "accepted, at most 5% wrong    nothing",
        "0.712 [0.650, 0.770] a|b → popqa, balanced",
    ):
        assert text in result.stdout, text
    write_bundle(tmp_path / "bare", replace(read_bundle(bundle), card=Card()))
    assert "nothing was measured" in run("card", tmp_path / "bare").stdout


def test_an_exported_probe_gives_the_score_through_the_reader_of_the_docs(bundle: Path, tmp_path: Path) -> None:
    out = tmp_path / "probe"
    for _ in range(2):  # its own files are replaced
        result = run("export", bundle, "--out", out, "--json")
        assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["files"] == ["probe.json", "probe.safetensors"]
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "bundle-format.md").read_text(), re.S)
    names: dict[str, Any] = {}
    exec(code, names)
    detector = Detector.load(bundle)
    for pair in (("Who wrote Dracula?", "Bram Stoker"), ("What is the capital of Peru?", "Lima")):
        wanted = detector.score(*pair).truth_probability
        assert names["truth_probability"](out, *pair) == pytest.approx(wanted, abs=1e-5)
    assert len(code.split("def ")[1].splitlines()) <= 20
    whole = replace(read_bundle(bundle), fitted=added((probe(), probe(("clean", "mlp", 2)))))
    write_bundle(tmp_path / "sum", whole)
    assert "is not one linear probe" in refused("export", tmp_path / "sum", "--out", tmp_path / "none")
    assert "is no bundle (it holds 'probe') and is not replaced" in refused("export", bundle, "--out", tmp_path)
    assert not (tmp_path / "none").exists()


def test_a_published_bundle_is_read_and_kept_without_the_hub(
    bundle: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories["me/probe"] = bundle_files(bundle) | {"README.md": b"a card"}
    commit, wanted = hub.commit_of("me/probe"), read_bundle(bundle)
    for place in ("hub:me/probe", f"hub:me/probe@{commit}", Path("hub:me/probe")):
        assert read_bundle(place).sha256 == wanted.sha256
    assert not any("README" in line for line in hub.asked if line.startswith("GET"))  # only the two files are fetched
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert read_bundle("hub:me/probe").sha256 == wanted.sha256
    assert "cannot be read from the hub" in refused("card", "hub:me/other")


def test_what_is_no_bundle_on_the_hub_is_one_line(bundle: Path, hub: Hub) -> None:
    files = bundle_files(bundle)
    hub.repositories["me/other"] = {"model.bin": b"x"}
    hub.repositories["me/probe"] = {**files, "weights.safetensors": files["weights.safetensors"][:-1] + b"!"}
    for place, message in (
        ("hub:me/other", "'hub:me/other' cannot be read from the hub"),
        ("hub:me/probe", "'hub:me/probe' cannot be used: weights"),
        ("hub:me/none", "'hub:me/none' cannot be read from the hub"),
        ("hub:../../etc", "names no repository of the hub"),
    ):
        assert message in refused("card", place)
