"""`anchorscope detector`: the card, and publishing to a hub that runs on this machine."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from anchorscope.cli.main import app
from anchorscope.detecting.publish import card_text
from anchorscope.detectors.bundle import bundle_files, read_bundle, write_bundle
from anchorscope.detectors.bundle_files import hub_folder
from anchorscope.detectors.detector import Detector
from anchorscope.detectors.trained import Card
from anchorscope.errors import UserError
from anchorscope.models.loading import load as load_model
from detector_cases import added, probe, trained_on
from hub_server import TOKEN, Hub, running_hub
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
    """A detector of a model that lies in a folder."""
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
    """An empty hub, a token for it, and a cache of the client's own."""
    from huggingface_hub import constants

    server.repositories, server.private, server.asked, server.sizes = {}, set(), [], {}
    monkeypatch.setenv("HF_ENDPOINT", server.address)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return server


def run(*words: object, typed: str = "") -> Result:
    return CliRunner().invoke(app, ["detector", *map(str, words)], prog_name="anchorscope", input=typed)


def refused(*words: object) -> str:
    result = run(*words)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("error: ")
    assert result.stdout == ""
    return result.stderr.splitlines()[-1]


def test_the_card_says_what_the_bundle_does(bundle: Path) -> None:
    result = run("card", bundle)
    assert result.exit_code == 0, result.stderr
    text, trained = result.stdout, read_bundle(bundle)
    assert text.startswith("---\nlibrary_name: anchorscope\ntags: [")
    assert "base_model" not in text  # the model lies on this machine
    assert f'Detector.load("{bundle}")' in text
    assert f"sha256 of the bundle: `{trained.sha256}`" in text
    assert "made &lt;b>up&lt;/b>" in text
    assert "| auroc | a\\|b | popqa | balanced | 0.712 | 0.650 to 0.770 | 120 |" in text
    assert "| 20% | 0.450 | 70% | 60 |" in text
    assert "| 5% | not reachable | 0% | 60 |" in text
    for line in ("- Also tried on popqa.", "- knows nothing", "- anchorscope 0.1.0"):
        assert line in text.splitlines()
    named = replace(trained, setting=replace(trained.setting, source="org/model"), card=Card())
    assert 'base_model: "org/model"' in card_text(named, "x")
    assert "Nothing was measured" in card_text(named, "x")


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


def test_published_and_loaded_back_it_is_the_same_detector(bundle: Path, hub: Hub) -> None:
    pushed = run("push", bundle, "me/probe", "--yes", "--json")
    assert pushed.exit_code == 0, pushed.stderr
    told, trained = json.loads(pushed.stdout), read_bundle(bundle)
    assert told == {
        "repository": "me/probe",
        "commit": hub.commit_of("me/probe"),
        "sha256": trained.sha256,
        "files": ["README.md", "detector.json", "weights.safetensors"],
    }
    there = dict(hub.repositories["me/probe"])
    card = there.pop("README.md").decode()
    assert there == bundle_files(bundle)
    assert 'Detector.load("hub:me/probe")' in card
    assert "public, as me/probe:" in pushed.stderr
    assert f"names the model as it was found in training, {trained.setting.source!r}" in pushed.stderr
    for place in ("hub:me/probe", f"hub:me/probe@{told['commit']}", Path("hub:me/probe")):
        assert read_bundle(place).sha256 == trained.sha256
    pair = ("Who wrote Dracula?", "Bram Stoker")
    assert Detector.load("hub:me/probe").score(*pair) == Detector.load(bundle).score(*pair)
    assert not any("README" in line for line in hub.asked if line.startswith("GET"))  # only the two files are fetched


def test_a_second_version_needs_to_be_asked_for_and_an_older_one_stays_refused(bundle: Path, hub: Hub) -> None:
    assert run("push", bundle, "me/probe", "--yes", "--private", "--quiet").stdout.startswith("hub:me/probe@")
    assert hub.private == {"me/probe"}
    assert refused("push", bundle, "me/probe", "--yes").endswith("Choose another name, or add --update.")
    assert run("push", bundle, "me/probe", "--yes", "--update").exit_code == 0
    with pytest.raises(UserError, match=r"has no 'hub:me/probe@0123456789' that you may see \(404\)"):
        read_bundle("hub:me/probe@0123456789")


def test_private_is_never_published_where_everybody_reads(bundle: Path, hub: Hub) -> None:
    hub.repositories["me/probe"] = {"README.md": b"before"}
    told = refused("push", bundle, "me/probe", "--yes", "--private", "--update")
    assert "'me/probe' is on the hub already, and public; nothing was published" in told
    assert hub.repositories["me/probe"] == {"README.md": b"before"}
    hub.private.add("me/probe")
    assert run("push", bundle, "me/probe", "--yes", "--private", "--update").exit_code == 0
    assert "detector.json" in hub.repositories["me/probe"]


def test_where_the_model_was_is_always_shown_and_no_path_is_a_base_model(bundle: Path, tmp_path: Path) -> None:
    trained = read_bundle(bundle)
    for source, is_name in (("models/client", True), ("../secret", False), ("./mine", False), ("a/.b", False)):
        named = replace(trained, setting=replace(trained.setting, source=source))
        assert ("base_model" in card_text(named, "x")) == is_name
        place = tmp_path / source.replace("/", "_")
        write_bundle(place, named)
        result = run("push", place, "me/probe")
        assert result.exit_code == 2  # nobody could be asked
        assert f"  model that these files name: {source}" in result.stderr.splitlines()
        assert ("warning: " in result.stderr) != is_name


def test_nothing_is_published_that_nobody_agreed_to(bundle: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "nobody can be asked here; add --yes" in refused("push", bundle, "me/probe")
    monkeypatch.setattr("typer.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    left = run("push", bundle, "me/probe", "--quiet", typed="n\n")
    assert left.exit_code == 2
    assert "  weights.safetensors: " in left.stderr  # what would be published was shown, quiet or not
    assert hub.asked == []
    assert run("push", bundle, "me/probe", typed="y\n").exit_code == 0
    assert "me/probe" in hub.repositories


def test_every_fault_of_the_hub_is_one_line(bundle: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "does not let you (403): 'others/probe' cannot be published" in refused(
        "push", bundle, "others/probe", "--yes"
    )
    assert "is no name of a repository" in refused("push", bundle, "no name", "--yes")
    assert "no such folder" in refused("push", bundle.parent / "none", "me/probe", "--yes")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert "does not know you (401)" in refused("push", bundle, "me/probe", "--yes")
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    assert "no token for the hub" in refused("push", bundle, "me/probe", "--yes")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: TOKEN)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    assert "The hub cannot be reached, so 'me/probe' cannot be published" in refused(
        "push", bundle, "me/probe", "--yes"
    )
    with pytest.raises(UserError, match="The hub cannot be reached, so 'hub:me/probe' cannot be read"):
        read_bundle("hub:me/probe")
    assert hub.repositories == {}


def test_what_is_no_detector_is_not_fetched(bundle: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repositories["me/other"] = {"model.bin": b"x"}
    with pytest.raises(UserError, match=r"is no detector: it has no detector.json"):
        read_bundle("hub:me/other")
    files = bundle_files(bundle)
    hub.repositories["me/probe"] = {**files, "weights.safetensors": files["weights.safetensors"][:-1] + b"!"}
    with pytest.raises(UserError, match="'hub:me/probe' cannot be used: weights"):
        read_bundle("hub:me/probe")
    hub.sizes["weights.safetensors"] = 10**10
    asked = len(hub.asked)
    with pytest.raises(UserError, match="more than 5 MB, which no detector needs; it is not fetched"):
        read_bundle("hub:me/probe")
    assert len(hub.asked) == asked + 1
    with pytest.raises(UserError, match="names no repository of the hub"):
        read_bundle("hub:../../etc")


def test_the_newest_one_that_was_fetched_is_there_without_the_hub(
    bundle: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories["me/probe"] = bundle_files(bundle) | {"README.md": b"first"}
    read_bundle("hub:me/probe")
    hub.repositories["me/probe"]["README.md"] = b"second"
    wanted = read_bundle("hub:me/probe").sha256
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert read_bundle("hub:me/probe").sha256 == wanted
    commit = hub.commit_of("me/probe")
    assert read_bundle(f"hub:me/probe@{commit}").sha256 == wanted
    assert hub_folder("hub:me/probe", ("detector.json",), 10**6).name == commit
