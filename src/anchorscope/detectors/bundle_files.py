"""The two files of a bundle, read and checked without torch: missing, altered, too large is refused; and its card."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from anchorscope.artefacts.forms import Count, Form, Number, Share, TemplateForm, check
from anchorscope.artefacts.sealed_folder import read_sealed, refuse_linked
from anchorscope.catalogue import DETECTORS, POSITIONS
from anchorscope.errors import UserError
from anchorscope.files import (
    canonical_hash,
    make_folder,
    read_regular,
    remove_partials,
    replacing_folder,
)
from anchorscope.json_text import from_json, to_json

JSON, WEIGHTS = "detector.json", "weights.safetensors"
COMPARISON = "detection.json"
"""Lies beside the bundles that a comparison of detectors saved."""
PROBE = ("probe.json", "probe.safetensors")
"""The files of a detector that was exported as one vector."""
SCHEMA = "anchorscope-detector"
SCHEMA_VERSION = 4
"""Raised whenever the form changes; docs/bundle-format.md says what each version has."""
MOST_BYTES = 64_000_000
"""Both files together: a detector is a small thing beside its model."""


class _Calibration(Form):
    slope: Number
    intercept: Number
    prevalence: Share


class _Setting(Form):
    model: str
    source: str
    fingerprint: str
    tokenizer: str
    n_layers: Annotated[int, Field(ge=1, le=100_000)]
    d_model: Annotated[int, Field(ge=1, le=10_000_000)]
    dtype: str
    template: TemplateForm
    position: Annotated[str, Field(pattern=f"^({'|'.join(POSITIONS)})$")]
    edges: str = "all"
    exact_tokens: str = "auto"
    max_new_tokens: Annotated[int, Field(ge=1, le=100_000)] = 16


class _Quality(Form):
    metric: str
    value: float | None
    ci_low: float | None = None
    ci_high: float | None = None
    train: str = ""
    test: str = ""
    prevalence: str = ""


class _Card(Form):
    data: str = ""
    quality: list[_Quality] = Field([])
    shifts: list[str] = Field([])
    limits: list[str] = Field([])
    versions: dict[str, str] = Field({})
    calibration: list[dict[str, float | None]] = Field([])


class _Threshold(Form):
    risk: Share
    delta: Share
    probability: Share | None
    coverage: Share
    n: Count
    prevalence: Share | None = None


class _ContextUse(Form):
    slope: Number
    intercept: Number
    variances: Annotated[list[Number], Field(min_length=3, max_length=3)]
    n: Count
    followed: Share
    brier: Share

    @model_validator(mode="after")
    def check_variances(self) -> "_ContextUse":
        square, both, constant = self.variances
        if min(square, constant) < 0 or both**2 > 1.000001 * square * constant:
            raise ValueError("variances are none")
        return self


class _Bundle(Form):
    """What `detector.json` holds beside the detector's own parts, which `load_detector` checks."""

    name: str
    parts: dict[str, dict[str, Any]]
    range: dict[str, Any] | None
    calibration: _Calibration
    setting: _Setting
    card: _Card
    thresholds: list[_Threshold]
    context_use: _ContextUse | None = None


DEMO = Path(__file__).parents[1] / "serve" / "demo_detector"
"""The bundle that comes along, for the embedded model."""


def bundle_files(place: str | Path) -> dict[str, bytes]:
    """The bytes of a bundle's two files, by name; of a run or its detectors, those of the recommended one."""
    folder, files = recommended_bundle(Path(place)), {}
    for name in (JSON, WEIGHTS):
        try:
            files[name] = read_regular(folder / name, MOST_BYTES)
        except OSError as error:
            reason = (
                f"{name} is missing" if folder.is_dir() else "there is no such folder"
            )
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                reason = f"{name} cannot be read ({error.strerror})"
            raise UserError(
                f"The bundle {str(folder)!r} cannot be read: {reason}. Give the folder that holds {JSON} and "
                f"{WEIGHTS}, as anchorscope detect writes it."
            ) from None
    return files


def recommended_bundle(place: Path) -> Path:
    """The folder of the detector that a run's comparison recommends; any other place is the bundle itself."""
    for comparison in (place, place / "detectors"):
        try:
            record = read_sealed(comparison / COMPARISON)
            saved = sorted(record["saved"])
            recommended = record["recommended"]
        except (OSError, ValueError, KeyError):
            continue
        if recommended in saved:
            return comparison / "bundles" / recommended
        raise UserError(
            f"The comparison {str(comparison)!r} recommends no detector that it saved; name one of its bundles: "
            f"{', '.join(str(comparison / 'bundles' / name) for name in saved) or 'none was saved'}."
        )
    return place


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes a record and its weights as a folder, whole or not at all, in the place of one of the same form."""
    refuse_other(folder, *files)
    make_folder(folder.parent)
    remove_partials(folder.parent, folder.name)
    with replacing_folder(folder) as half_made:
        half_made.mkdir()
        for name, content_bytes in files.items():
            (half_made / name).write_bytes(content_bytes)


def refuse_other(folder: Path, record_file: str, weights_file: str) -> None:
    """Refuses to replace a folder unless it is empty or all that it holds is a record of ours and its weights."""
    refuse_linked(folder)
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        content = "it is a link" if folder.is_symlink() else "it is a file"
    else:
        names = sorted(path.name for path in folder.iterdir())
        others = [name for name in names if name not in (record_file, weights_file)]
        is_ours = not others and _is_record(folder, record_file, weights_file)
        if is_ours or not names:
            return
        content = f"it holds {others[0]!r}" if others else f"its {names[0]} is not ours"
    raise UserError(
        f"{str(folder)!r} is no bundle ({content}) and is not replaced; choose another folder."
    )


def _is_record(folder: Path, record_file: str, weights_file: str) -> bool:
    """Whether two files are a record, to the byte as it is written, and the weights whose hash it has."""
    paths = (folder / record_file, folder / weights_file)
    if any(path.is_symlink() for path in paths):
        return False
    try:
        text, weights = (read_regular(path, MOST_BYTES) for path in paths)
        record = from_json(text)
        whole = written(record) == text
        return whole and record["weights_sha256"] == hashlib.sha256(weights).hexdigest()
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def checked_record(files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    """What `detector.json` says, if both files are as they were written; `name` is what an error calls the bundle."""
    if sum(map(len, files.values())) > MOST_BYTES:
        raise refused(
            name, f"it has more than {MOST_BYTES / 1e6:g} MB, which no detector needs"
        )
    try:
        record = from_json(files[JSON])
        as_written = written(record)
    except ValueError:
        raise refused(name, f"{JSON} is no JSON: it was altered or cut off") from None
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise refused(name, f"{JSON} does not describe a detector")
    if record.get("schema_version") not in range(1, SCHEMA_VERSION + 1):
        raise UserError(
            f"The bundle {name!r} has the schema version {record.get('schema_version')!r}, and this anchorscope reads "
            f"1 to {SCHEMA_VERSION}; use the version of anchorscope that made it, or train it again with anchorscope "
            f"detect."
        )
    content = {key: value for key, value in record.items() if key != "sha256"}
    if canonical_hash(content) != record.get("sha256") or as_written != files[JSON]:
        raise refused(
            name, f"{JSON} was altered (its sha256 is not that of its content)"
        )
    if hashlib.sha256(files[WEIGHTS]).hexdigest() != record.get("weights_sha256"):
        raise refused(
            name,
            f"{WEIGHTS} was altered or cut off (its sha256 is not the one in {JSON})",
        )
    try:
        check(_Bundle, record)
    except ValueError as error:
        raise refused(
            name, f"it lacks something or holds something else ({JSON} has {error})"
        ) from None
    return record


def training_data(words: str) -> str:
    """What a card says of the data; older cards begin with what the detector is."""
    return words.rpartition("; trained on ")[2]


def card_rows(folder: str | Path) -> list[tuple[str, ...]]:
    """What a user has to know before trusting the detector of a bundle: rows of one or two cells."""
    # Only here: SciPy takes a moment, and no other reader of the files needs it.
    from anchorscope.stats.calibration import Threshold, without_dominated

    record = checked_record(bundle_files(folder), str(folder))
    bundle = _Bundle.model_validate(record)
    setting, card = bundle.setting, bundle.card
    known = [entry for entry in DETECTORS.values() if entry.name == bundle.name]
    versions = (f"{name} {version}" for name, version in card.versions.items())
    rows: list[tuple[str, ...]] = [
        ("detector", bundle.name),
        *(("what it is", entry.about) for entry in known),
        (
            "model",
            f"{setting.model} ({setting.source}), {setting.n_layers} layers, {setting.dtype}",
        ),
        ("reads", f"{setting.position} token, {setting.template.kind} prompt"),
        ("trained on", training_data(card.data)),
        *(("tried on", name) for name in card.shifts),
        *(("limit", limit) for limit in card.limits),
        ("made with", ", ".join(versions)),
        ("sha256", record["sha256"]),
        ("",),
    ]
    stated = [Threshold(**vars(threshold)) for threshold in bundle.thresholds]
    for threshold in sorted(without_dominated(stated), key=lambda each: each.risk):
        start = threshold.probability
        accepted = (
            "nothing"
            if start is None
            else f"{threshold.coverage:.0%}, from probability {start:.3f} on"
        )
        rows.append((f"called true, at most {threshold.risk:.0%} wrong", accepted))
    rows.append(("" if card.quality else "nothing was measured",))
    rows += [
        (_METRICS.get(row.metric, row.metric), _describe_quality(row))
        for row in card.quality
    ]
    return rows


_METRICS = {
    "auroc": "AUROC",
    "auprc": "AUPRC of false answers",
    "brier": "Brier score",
    "ece": "calibration error (ECE)",
    "e-aurc": "excess area under risk-coverage",
    "prr": "prediction rejection ratio",
    "auroc-spread": "AUROC, spread of fold seeds",
    "accuracy@50": "true among the 50% it trusts most",
    "accuracy@80": "true among the 80% it trusts most",
    "accuracy@90": "true among the 90% it trusts most",
}


def _describe_quality(row: _Quality) -> str:
    value = "–" if row.value is None else f"{row.value:.3f}"
    if row.ci_low is not None and row.ci_high is not None:
        value += f" [{row.ci_low:.3f}, {row.ci_high:.3f}]"
    where = f"{row.train} → {row.test}, {row.prevalence}" if row.train else ""
    return f"{value} {where}"


def written(record: Mapping[str, Any]) -> bytes:
    """The one way in which a record is written."""
    return (to_json(record, sort_keys=True, indent=1, ascii=False) + "\n").encode()


def refused(name: str, why: str) -> UserError:
    return UserError(
        f"The bundle {name!r} cannot be used: {why}; copy the bundle again from where it was made, or train it again "
        f"with anchorscope detect."
    )
