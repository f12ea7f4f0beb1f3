"""A bundle may come from anybody: whatever it says, sealed anew, it is refused in one line or its numbers are sound."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

from anchorscope.detectors.bundle import TrainedDetector, pack, unpack
from anchorscope.detectors.bundle_files import JSON, WEIGHTS, written
from anchorscope.detectors.detector import Detector
from anchorscope.detectors.features import TEXT_STATE
from anchorscope.detectors.fitted import (
    Fitted,
    LinearProbe,
    Mixture,
    Network,
    WithFallback,
)
from anchorscope.errors import UserError
from anchorscope.evidence.source_use import UseCalibration
from anchorscope.files import canonical_hash
from anchorscope.models.language_model import LanguageModel
from commands import invoke
from detector_cases import CLEAN, OTHER, PAIRS, added, probe, trained_on
from mutations import mutations

Files = dict[str, bytes]
USE = UseCalibration(1.5, -2.0, (0.1, 0.0, 0.2), 300, 0.4, 0.05)


def fitted_of(name: str, lm: LanguageModel) -> Fitted:
    if name == "probe":
        return probe()
    if name == "network":
        weights = (torch.ones(3, 32) / 9, torch.ones(1, 3) / 9)
        return Network(OTHER, weights, (torch.ones(3), torch.zeros(1)))
    if name == "mixture":
        return Mixture(probe(), probe(OTHER, 1), probe(CLEAN, 2))
    if name == "text":
        return LinearProbe(TEXT_STATE, torch.ones(2048) / 99, 0.0)
    both = added((probe(), probe(OTHER, 3)), ("log_prob_mean",))
    span = trained_on(lm).range
    assert span is not None
    return WithFallback(both, probe(), replace(span, limit=3.0))


KINDS = ("probe", "network", "mixture", "text", "fallback")


def sealed(record: dict[str, Any], weights: bytes) -> Files:
    """The two files, with hashes that fit."""
    digest = hashlib.sha256(weights).hexdigest()
    content = {**record, "weights_sha256": digest}
    content.pop("sha256", None)
    whole = {**content, "sha256": canonical_hash(content)}
    return {JSON: written(whole), WEIGHTS: weights}


def other_shapes(tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    yield "twice as long", torch.cat([tensor, tensor])
    yield "one shorter", tensor[:-1].contiguous()
    yield "empty", tensor[:0].contiguous()
    yield "wider", tensor[..., None].repeat_interleave(2, -1).contiguous()
    yield "a number", tensor.flatten()[0].clone()
    yield "whole numbers", tensor.long()
    yield "truths", tensor > 0
    yield "huge", torch.full_like(tensor, 3e38)
    if tensor.dim() == 2:
        yield "turned", tensor.T.contiguous()


def cases(files: Files) -> Iterator[tuple[str, Files]]:
    record, tensors = json.loads(files[JSON]), load(files[WEIGHTS])
    for name, changed in mutations(record, each=2, most=20):
        if isinstance(changed, dict):
            yield name, sealed(changed, files[WEIGHTS])
    for name, tensor in tensors.items():
        for how, other in other_shapes(tensor):
            yield f"{name} {how}", sealed(record, save({**tensors, name: other}))
        rest = {key: part for key, part in tensors.items() if key != name}
        yield f"{name} missing", sealed(record, save(rest))


def use(files: Files, lm: LanguageModel) -> str | None:
    """Loads the detector and scores with it; the line of a refusal."""
    try:
        trained = unpack(files, "it")
        scores = Detector(trained, lm).score_many(PAIRS[:3])
    except UserError as error:
        assert "\n" not in str(error)  # noqa: PT017
        return str(error)
    for score in scores:
        assert score.truth_probability is not None
        assert 0 <= score.truth_probability <= 1
    return None


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_bundle_says_it_is_refused_or_gives_probabilities(
    kind: str, tiny_llama: LanguageModel, tmp_path: Path
) -> None:
    trained: TrainedDetector = trained_on(
        tiny_llama, fitted=fitted_of(kind, tiny_llama), context_use=USE
    )
    files = pack(trained)
    assert use(files, tiny_llama) is None
    refused = tried = 0
    faults: list[str] = []
    for name, other in cases(files):
        tried += 1
        try:
            refused += use(other, tiny_llama) is not None
        except Exception as error:
            faults.append(f"{name}: {type(error).__name__}: {error}")
        faults += [f"{name}: {line}" for line in command_faults(other, tmp_path, tried)]
    assert not faults, f"{len(faults)} of {tried}: " + "\n".join(faults)
    assert tried > 150
    assert refused > tried / 3


def command_faults(files: Files, folder: Path, number: int) -> Iterator[str]:
    """What goes wrong when its card is shown, and when it is exported."""
    for file, content in files.items():
        (folder / file).write_bytes(content)
    out = folder.parent / f"{folder.name}-exported-{number}"
    for words in (("card", folder), ("export", folder, "--out", out)):
        result = invoke("detector", *words)
        errors = [
            line for line in result.stderr.splitlines() if line.startswith("error:")
        ]
        if (result.exit_code, len(errors)) not in ((0, 0), (2, 1)):
            yield f"{words[0]}: {result.exit_code}, {errors}, {result.exception!r}"
