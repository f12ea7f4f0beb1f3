"""A bundle is what was saved to the last bit, or it is refused in one line."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.catalogue import DETECTORS
from anchorscope.detecting.detect import thresholds_at
from anchorscope.detectors.bundle import (
    TrainedDetector,
    pack,
    read_bundle,
    unpack,
    write_bundle,
)
from anchorscope.detectors.bundle_files import JSON, MOST_BYTES, WEIGHTS, card_rows
from anchorscope.detectors.fitted import LinearProbe, WeightedSum
from anchorscope.errors import UserError
from anchorscope.evidence.source_use import UseCalibration
from anchorscope.models.language_model import LanguageModel
from anchorscope.stats.calibration import Threshold
from detector_cases import OTHER, added, probe, trained_on


@pytest.fixture(scope="module")
def trained(tiny_llama: LanguageModel) -> TrainedDetector:
    return trained_on(
        tiny_llama, fitted=added((probe(), probe(OTHER, 3)), ("log_prob_mean",))
    )


def refused(files: dict[str, bytes], message: str) -> None:
    with pytest.raises(UserError, match=message) as told:
        unpack(files, "here")
    assert "\n" not in str(told.value)


def altered(files: dict[str, bytes], **changes: Any) -> dict[str, bytes]:
    """A bundle that says something else, with hashes that fit: what another program might write."""
    record = {**json.loads(files[JSON]), **changes}
    record.pop("sha256")
    whole = {
        **record,
        "sha256": hashlib.sha256(
            json.dumps(record, sort_keys=True).encode()
        ).hexdigest(),
    }
    text = json.dumps(whole, sort_keys=True, indent=1, ensure_ascii=False) + "\n"
    return {**files, JSON: text.encode()}


def test_a_bundle_is_two_files_and_holds_the_whole_detector(
    trained: TrainedDetector, tmp_path: Path
) -> None:
    assert read_again(trained).context_use is None
    use = UseCalibration(1.5, -2.0, (0.1, 0.0, 0.2), 300, 0.4, 0.05)
    trained = replace(trained, context_use=use)
    assert read_again(trained).context_use == use
    write_bundle(tmp_path / "made" / "probe", trained)
    assert sorted(one.name for one in (tmp_path / "made" / "probe").iterdir()) == [
        JSON,
        WEIGHTS,
    ]
    assert [one.name for one in (tmp_path / "made").iterdir()] == ["probe"]
    again = read_bundle(tmp_path / "made" / "probe")
    assert again.sha256 == json.loads(pack(trained)[JSON])["sha256"]
    assert pack(again) == pack(trained)
    plain = ("name", "calibration", "setting", "card", "thresholds")
    assert [getattr(again, name) for name in plain] == [
        getattr(trained, name) for name in plain
    ]
    assert again.needs == trained.needs
    assert isinstance(again.fitted, WeightedSum)
    torch.testing.assert_close(
        again.fitted.parts[1].weight, probe(OTHER, 3).weight, rtol=0, atol=0
    )
    write_bundle(tmp_path / "made" / "probe", trained)  # in its own place


def read_again(trained: TrainedDetector) -> TrainedDetector:
    return unpack(pack(trained), "it")


@given(data=st.data())
def test_no_byte_can_change_unseen(
    trained: TrainedDetector, data: st.DataObject
) -> None:
    files = pack(trained)
    name = data.draw(st.sampled_from(sorted(files)))
    place = data.draw(st.integers(0, len(files[name]) - 1))
    other = data.draw(st.integers(1, 255))
    changed = bytearray(files[name])
    changed[place] ^= other
    refused(
        {**files, name: bytes(changed)},
        "^The bundle 'here' (cannot be used|has the schema version)",
    )


@given(data=st.data())
def test_no_end_can_be_missing_and_nothing_can_be_added(
    trained: TrainedDetector, data: st.DataObject
) -> None:
    files = pack(trained)
    name = data.draw(st.sampled_from(sorted(files)))
    stop = data.draw(st.integers(0, len(files[name]) - 1))
    refused({**files, name: files[name][:stop]}, "cannot be used")
    refused(
        {**files, name: files[name] + data.draw(st.binary(min_size=1, max_size=9))},
        "cannot be used",
    )


def test_what_is_no_bundle_is_told(trained: TrainedDetector, tmp_path: Path) -> None:
    for place, message in (
        (tmp_path / "nowhere", "there is no such folder"),
        (tmp_path, "detector.json is missing"),
        (Path(__file__), "there is no such folder"),
    ):
        with pytest.raises(UserError, match=message):
            read_bundle(place)
    write_bundle(tmp_path / "one", trained)
    (tmp_path / "one" / WEIGHTS).unlink()
    with pytest.raises(
        UserError, match=r"weights.safetensors is missing. Give the folder"
    ):
        read_bundle(tmp_path / "one")
    (tmp_path / "one" / WEIGHTS).write_bytes(bytes(MOST_BYTES + 1))
    with pytest.raises(UserError, match="at most 64,000,000 are read"):
        read_bundle(tmp_path / "one")


def test_what_fits_its_hashes_and_is_still_wrong_is_told(
    trained: TrainedDetector,
) -> None:
    files = pack(trained)
    refused(
        altered(files, schema_version=5),
        "has the schema version 5, and this anchorscope reads 1 to 4",
    )
    refused(altered(files, schema="a poem"), "does not describe a detector")
    unknown = {"fitted": {"kind": "oracle", "values": {}}}
    refused(
        altered(files, parts=unknown),
        "the unknown kind 'oracle'; known here: .*linear-probe",
    )
    inside = json.loads(files[JSON])["parts"]
    inside["fitted"]["values"]["parts"]["0"]["kind"] = "oracle"
    refused(altered(files, parts=inside), "the unknown kind 'oracle'")
    refused(altered(files, parts={}), "lacks something")
    refused(altered(files, calibration={"slope": 1.0}), "lacks something")
    refused(
        altered(files, calibration={"slope": 1.0}, thresholds=7, setting=None),
        "lacks something",
    )
    refused({**files, JSON: b"[1, 2]"}, "does not describe a detector")
    refused({**files, JSON: b'{"schema": NaN}'}, "is no JSON")
    weights = b"no tensors at all"
    told = altered(
        {**files, WEIGHTS: weights}, weights_sha256=hashlib.sha256(weights).hexdigest()
    )
    refused(told, "lacks something")


def test_weights_that_are_no_numbers_are_neither_saved_nor_loaded(
    trained: TrainedDetector,
) -> None:
    from safetensors.torch import load, save

    bad = LinearProbe(probe().key, probe().weight.clone().fill_(float("nan")), 0.0)
    with pytest.raises(
        UserError,
        match=r"'probe' cannot be saved: its weights 'fitted/weight' hold NaN",
    ):
        pack(replace(trained, fitted=bad))
    files = pack(trained)
    tensors = load(files[WEIGHTS])
    tensors["fitted/0/weight"][3] = float("inf")
    weights = save(tensors)
    told = altered(
        {**files, WEIGHTS: weights}, weights_sha256=hashlib.sha256(weights).hexdigest()
    )
    refused(told, "hold NaN or infinity")


def test_a_bundle_of_an_earlier_version_is_read(trained: TrainedDetector) -> None:
    files = pack(trained)
    record = json.loads(files[JSON])
    del record["card"]["calibration"]
    record["layer_probes"] = {"site": "mlp"}  # what versions 2 and 3 had is ignored
    again = unpack(
        altered({**files, JSON: json.dumps(record).encode()}, schema_version=1), "here"
    )
    assert again.card.calibration == ()
    assert again.calibration == trained.calibration


RISKS = [step / 20 for step in range(1, 19)]


@given(
    answers=st.lists(
        st.tuples(st.integers(0, 9), st.booleans(), st.sampled_from([1.0, 1.0, 3.0])),
        min_size=20,
        max_size=150,
    ),
    risks=st.lists(st.sampled_from(RISKS), max_size=4, unique=True),
)
def test_a_larger_risk_never_accepts_less(
    trained: TrainedDetector, answers: list[tuple[int, bool, float]], risks: list[float]
) -> None:
    places, labels, weights = (
        np.array(column) for column in zip(*answers, strict=True)
    )
    stated = thresholds_at(places / 9, labels, weights, risks)
    check_larger_risks(replace(trained, thresholds=stated))


STATED = st.builds(
    Threshold,
    risk=st.sampled_from(RISKS),
    delta=st.just(0.1),
    probability=st.none() | st.sampled_from(RISKS),
    coverage=st.just(0.5),
    n=st.just(100),
)


@given(stated=st.lists(STATED, max_size=5))
def test_an_older_bundle_accepts_no_less_at_a_larger_risk_either(
    trained: TrainedDetector, stated: list[Threshold]
) -> None:
    fallen = sorted(
        (replace(each, coverage=1 - (each.probability or 1)) for each in stated),
        key=lambda each: each.risk,
    )
    again = read_again(replace(trained, thresholds=tuple(fallen)))
    assert set(again.thresholds) <= set(fallen)
    check_larger_risks(again)
    for risk in RISKS if fallen else ():
        kept_by = [each.lowest for each in fallen if each.risk <= risk]
        if kept_by:
            assert again.threshold(risk).lowest == min(kept_by)


def check_larger_risks(trained: TrainedDetector) -> None:
    """The threshold does not rise with the risk, the share that is accepted does not fall; below all risks is none."""
    before = None
    for risk in RISKS:
        if not any(each.risk <= risk for each in trained.thresholds):
            with pytest.raises(UserError, match="or a smaller one; it was trained for"):
                trained.threshold(risk)
            continue
        threshold = trained.threshold(risk)
        assert threshold.risk <= risk
        assert trained.verdict_limits(risk).true_from == threshold.lowest
        told = trained.threshold_notes(risk)
        assert bool(told) == (threshold.risk < risk or threshold.probability is None)
        if before is not None:
            assert threshold.lowest <= before.lowest
            assert threshold.coverage >= before.coverage - 1e-12
        before = threshold


def test_the_card_of_an_older_bundle_says_data_and_thresholds_plainly(
    trained: TrainedDetector, tmp_path: Path
) -> None:
    older = replace(
        trained,
        name="auto",
        card=replace(trained.card, data="a stack; trained on 308 answers (mine: …)"),
        thresholds=(
            Threshold(0.27, 0.1, 0.669, 0.29, 300),
            Threshold(0.1, 0.1, None, 0.0, 300),
            Threshold(0.3, 0.1, None, 0.0, 300),
        ),
    )
    write_bundle(tmp_path / "auto", older)
    rows = card_rows(tmp_path / "auto")
    assert ("what it is", DETECTORS["auto"].about) in rows
    assert ("trained on", "308 answers (mine: …)") in rows
    accepted = [row for row in rows if row[0].startswith("called true")]
    assert accepted == [
        ("called true, at most 10% wrong", "nothing"),
        ("called true, at most 27% wrong", "29%, from probability 0.669 on"),
    ]
