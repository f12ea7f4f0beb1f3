"""The card of a saved detector, as Markdown; a detector as one vector; and publishing on a hub of models.

The card says what it was trained on, how good it is, what it can't do and how to load it; the lines between the two
`---` are what the hub reads.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save as save_tensors

from anchorscope.detectors.bundle import bundle_files, unpack
from anchorscope.detectors.bundle_files import PREFIX, hub_api, hub_errors, written
from anchorscope.detectors.features import CLEAN
from anchorscope.detectors.fitted import LinearProbe
from anchorscope.detectors.trained import TrainedDetector
from anchorscope.errors import UserError
from anchorscope.kept_states import format_ranges
from anchorscope.stats.calibration import Threshold

_HUB_ID = re.compile(r"(?!\.)[\w.-]+/(?!\.)[\w.-]+")  # and neither ./mine nor ../mine
_TAGS = ("anchorscope", "hallucination-detection", "truthfulness", "probe", "interpretability")


def is_hub_id(source: str) -> bool:
    """Whether a model's source is a name on the hub, and no place on this machine."""
    return bool(_HUB_ID.fullmatch(source)) and not os.path.exists(source)


def card_text(trained: TrainedDetector, place: str) -> str:
    """The card of a detector that was read from a bundle; `place` is what `Detector.load` is given."""
    lines = [*_metadata(trained), *_about(trained, place), *_measured(trained), *_rest(trained)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _metadata(trained: TrainedDetector) -> Iterator[str]:
    yield "---"
    yield "library_name: anchorscope"
    yield f"tags: {json.dumps(list(_TAGS))}"
    if is_hub_id(trained.setting.source):
        yield f"base_model: {json.dumps(trained.setting.source)}"
    yield "---"


def _about(trained: TrainedDetector, place: str) -> Iterator[str]:
    setting = trained.setting
    layers = sorted({layer for _, _, layer in trained.needs.states})
    read = f"the states of layer {format_ranges(layers)}" if layers else "the model's confidence"
    yield f"# Detector `{_plain(trained.name)}` for {_plain(setting.model)}"
    yield ""
    yield f"Says how probable it is that a short answer of {_plain(setting.model)} is true. It reads {read} at"
    yield f"`{_plain(setting.position)}`, under the {_plain(setting.template.kind)} prompt, and nothing else."
    yield ""
    yield "```python"
    yield "import anchorscope"
    yield ""
    yield f"detector = anchorscope.Detector.load({json.dumps(place)})"
    yield 'detector.score("What is the capital of Peru?", "Lima").truth_probability'
    yield "```"
    yield ""
    yield "The bundle is two files, JSON and safetensors; nothing in it is run. A model with other weights, another"
    yield "tokenizer or another template is refused."
    yield ""
    yield f"- sha256 of the bundle: `{trained.sha256}`"
    yield f"- fingerprint of the model: `{_plain(setting.fingerprint)}`"
    yield f"- layers: {setting.n_layers}, precision: {_plain(setting.dtype)}"
    yield ""
    yield "## Data"
    yield ""
    yield _plain(trained.card.data) or "Nothing was written down."
    yield ""


def _measured(trained: TrainedDetector) -> Iterator[str]:
    yield "## Quality"
    yield ""
    if trained.card.quality:
        yield "| metric | trained on | tested on | answers | value | 95 % interval | n |"
        yield "|---|---|---|---|---|---|---|"
        yield from map(_quality_row, trained.card.quality)
    else:
        yield "Nothing was measured (it was saved with --fit-only)."
    yield ""
    if trained.thresholds:
        yield "## Which answers are accepted"
        yield ""
        yield "| false among the accepted, at most | from this probability on | share accepted | calibration answers |"
        yield "|---|---|---|---|"
        yield from map(_threshold_row, trained.thresholds)
        yield ""


def _quality_row(row: Mapping[str, Any]) -> str:
    low, high = _number(row.get("ci_low")), _number(row.get("ci_high"))
    interval = f"{low} to {high}" if low and high else ""
    cells = [str(row.get(name, "")) for name in ("metric", "train", "test", "prevalence")]
    return _row([*cells, _number(row.get("value")), interval, _number(row.get("n"))])


def _threshold_row(one: Threshold) -> str:
    found = "not reachable" if one.probability is None else f"{one.probability:.3f}"
    return _row([f"{one.risk:.0%}", found, f"{one.coverage:.0%}", str(one.n)])


def _rest(trained: TrainedDetector) -> Iterator[str]:
    shifts = [f"Also tried on {_plain(text)}." for text in trained.card.shifts] or ["It was tried on no other data."]
    versions = [f"{_plain(name)} {_plain(number)}" for name, number in trained.card.versions.items()]
    for title, lines in (("Shifts", shifts), ("Limits", [*map(_plain, trained.card.limits)]), ("Made with", versions)):
        if lines:
            yield f"## {title}"
            yield ""
            yield from (f"- {line}" for line in lines)
            yield ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(_plain(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def _number(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else "" if value is None else str(value)


def _plain(text: object) -> str:
    """On one line, and nothing in it is HTML."""
    return " ".join(str(text).split()).replace("<", "&lt;")


PROBE_JSON, PROBE_WEIGHTS = "probe.json", "probe.safetensors"
PROBE_SCHEMA = "anchorscope-linear-probe"
PROBE_VERSION = 1
_POSITIONS = {
    "final": "the answer's last token",
    "answer_end": "the last token of the answer's entity",
    "answer_before": "the token before the answer's entity",
}
_SITES = {
    "attention": "what attention adds to the residual stream",
    "mlp": "what the feed-forward part adds to the residual stream",
    "residual": "the residual stream after the block",
}


def linear_probe_files(trained: TrainedDetector) -> dict[str, bytes]:
    """A detector as one vector and a card, with its calibration folded in: sigmoid(state · weight + bias) is the
    probability that the answer is true. The format is in docs/bundle-format.md."""
    fitted, setting = trained.fitted, trained.setting
    if not isinstance(fitted, LinearProbe) or fitted.key[0] != CLEAN:
        raise UserError(
            f"Detector {trained.name!r} is not one linear probe, so that one vector cannot replace it; export one that "
            f"is: anchorscope detect RUN --fit-only --bundles probe."
        )
    calibration, (_, site, layer) = trained.calibration, fitted.key
    weight = (calibration.slope * fitted.weight.double()).float().cpu().contiguous()
    tensors = save_tensors({"weight": weight})
    record = {
        "schema": PROBE_SCHEMA,
        "schema_version": PROBE_VERSION,
        "detector": trained.name,
        "bundle_sha256": trained.sha256,
        "model": {
            name: getattr(setting, name) for name in ("model", "source", "fingerprint", "n_layers", "d_model", "dtype")
        },
        "layer": layer,
        "site": site,
        "site_means": _SITES[site],
        "position": setting.position,
        "position_means": _POSITIONS[setting.position],
        "prompt": asdict(setting.template),
        "bias": calibration.slope * fitted.bias + calibration.intercept,
        "standardisation": "folded into weight and bias",
        "score": "sigmoid(state · weight + bias) = probability that the answer is true",
        "prevalence": calibration.prevalence,
        "thresholds": [asdict(threshold) for threshold in trained.thresholds],
        "data": trained.card.data,
        "limits": list(trained.card.limits),
        "weights_sha256": hashlib.sha256(tensors).hexdigest(),
    }
    return {PROBE_JSON: written(record), PROBE_WEIGHTS: tensors}


CARD = "README.md"
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class Publication:
    """Files for a repository, before anything is sent."""

    repository: str
    files: dict[str, bytes]
    sha256: str
    """Of the bundle."""
    model: str
    """Where the model was found in training: it stands in the files."""
    told: tuple[str, ...]
    """What the user may not want others to see."""


def publication(bundle: Path, repository: str) -> Publication:
    """What would be published of a bundle: its two files as they are, and the card."""
    if not _REPOSITORY.fullmatch(repository):
        raise UserError(f"{repository!r} is no name of a repository on the hub; write USER/NAME.")
    files = bundle_files(bundle)
    trained = unpack(files, str(bundle))
    card = card_text(trained, PREFIX + repository)
    source = trained.setting.source
    told = (
        ()
        if is_hub_id(source)
        else (
            f"detector.json names the model as it was found in training, {source!r}: others read that, and have to "
            f"name the model themselves (--model)",
        )
    )
    return Publication(repository, {CARD: card.encode(), **files}, str(trained.sha256), source, told)


def publish(what: Publication, *, private: bool = False, update: bool = False) -> str:
    """Makes the repository and puts the files into it, in one commit; gives the commit."""
    from huggingface_hub import CommitOperationAdd, get_token  # only here: help has to come at once

    if not get_token():
        raise UserError(
            "There is no token for the hub, so nothing can be published. Log in with hf auth login, or set HF_TOKEN."
        )
    api = hub_api()
    with hub_errors(what.repository, "published"):
        api.create_repo(what.repository, private=private, exist_ok=update)  # one that exists stays as public as it is
        if private and not api.model_info(what.repository).private:
            raise UserError(
                f"{what.repository!r} is on the hub already, and public; nothing was published. Make it private there, "
                f"choose another name, or leave out --private."
            )
        done = api.create_commit(
            what.repository,
            [CommitOperationAdd(name, content) for name, content in what.files.items()],
            commit_message=f"Detector {what.sha256[:12]}",
        )
    return str(done.oid)
