"""Scores beside those of uqlm: its results in, the same with the detector's columns out, as files.

json.dump({"data": result.data, "metadata": result.metadata}, file)  # in uqlm's environment
score_file("runs/mine", "in.json", "out.json")      # in ours
UQResult(json.load(file)).to_df()                                    # there again, with the columns `SCORES`

uqlm needs transformers below 5 and NumPy below 2, so files go between two environments; reading and writing them needs
the standard library only. A result's `to_dict()` has lost the prompts (0.6.7), so `data` and `metadata` are written.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorscope.errors import UserError
from anchorscope.files import replacing
from anchorscope.json_text import to_json

if TYPE_CHECKING:
    from anchorscope.detectors.detector import Detector, Score

SCORES = ("anchorscope", "anchorscope_log_odds", "anchorscope_verdict")
"""The added columns: probability of "truthful" (higher is better), log-odds, verdict."""
_WRITTEN = '{"data": result.data, "metadata": result.metadata}'


def score_file(
    detector: "str | Path | Detector",
    source: str | Path,
    out: str | Path,
    **loading: Any,
) -> None:
    """Scores the prompts and responses of a result and writes it with the detector's columns.

    A prompt is a question: it is asked in the detector's own prompt, and the response's first line is scored as if
    given there. `loading` goes to `Detector.load`.
    """
    from anchorscope.datasets.formats import (
        first_line,
    )  # only here: uqlm's environment has no such transformers
    from anchorscope.detectors.detector import Detector

    result = read_result(source)
    ready = (
        detector
        if isinstance(detector, Detector)
        else Detector.load(detector, **loading)
    )
    pairs = [
        (question, first_line(answer))
        for question, answer in pairs_of(result, str(source))
    ]
    write_result(out, with_scores(result, ready.score_many(pairs)))


def read_result(path: str | Path) -> dict[str, Any]:
    """A result of uqlm as a dictionary with `data` and `metadata`."""
    try:
        result = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"The file {str(path)!r} cannot be read ({error.strerror}); give a result of uqlm."
        ) from None
    except ValueError:
        raise UserError(
            f"The file {str(path)!r} is no JSON; write it with json.dump({_WRITTEN}, file)."
        ) from None
    pairs_of(result, str(path))
    return dict(result)


def pairs_of(result: Any, name: str = "the result") -> list[tuple[str, str]]:
    data = result.get("data") if isinstance(result, Mapping) else None
    columns = data if isinstance(data, Mapping) else {}
    prompts, responses = columns.get("prompts"), columns.get("responses")
    if not isinstance(prompts, list) or not isinstance(responses, list):
        raise UserError(
            f"No prompts and responses in {name!r}; wanted is a UQResult with both in its data, written with "
            f"json.dump({_WRITTEN}, file): its to_dict() has lost the prompts."
        )
    if len(prompts) != len(responses):
        raise UserError(
            f"{len(prompts)} prompts and {len(responses)} responses in {name!r}; there must be as many."
        )
    pairs = list(zip(prompts, responses, strict=True))
    for number, pair in enumerate(pairs, start=1):
        if not all(isinstance(text, str) for text in pair):
            raise UserError(
                f"Prompt {number} in {name!r} or its response is no text; conversations cannot be scored: give the "
                f"question alone as the prompt."
            )
    return pairs


def with_scores(result: Mapping[str, Any], scores: "Iterable[Score]") -> dict[str, Any]:
    """The same result with the columns of the detector."""
    rows = [
        (score.truth_probability, score.log_odds, score.verdict) for score in scores
    ]
    columns = {name: [row[index] for row in rows] for index, name in enumerate(SCORES)}
    metadata = {**(result.get("metadata") or {}), "anchorscope_columns": list(SCORES)}
    return {**result, "data": {**result["data"], **columns}, "metadata": metadata}


def write_result(path: str | Path, result: Mapping[str, Any]) -> None:
    """As JSON, whole or not at all."""
    text = to_json(result, ascii=False, indent=1) + "\n"
    try:
        with replacing(Path(path)) as half_made:
            half_made.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"The file {str(path)!r} cannot be written ({error.strerror}); choose another place."
        ) from None
