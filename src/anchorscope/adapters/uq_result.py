"""Results in the form of uqlm: a dictionary of `data`, lists with one entry per prompt, and `metadata` (`UQResult`).

uqlm needs transformers below 5 and NumPy below 2, so it lives in an environment of its own, and files go between. What
is here needs the standard library only, and can be used on either side.

A result is written as {"data": result.data, "metadata": result.metadata}: its `to_dict()` has lost the prompts (0.6.7
takes them out of the dictionary that it was made of).
"""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from anchorscope.artefacts.durable import replacing
from anchorscope.errors import UserError

SCORES = ("anchorscope", "anchorscope_log_odds", "anchorscope_verdict")
"""The columns that are added: probability of "truthful" (higher is better, as uqlm's scores are), log-odds, verdict."""


_WRITTEN = '{"data": result.data, "metadata": result.metadata}'


class Scored(Protocol):
    """What is read of a `Score`."""

    @property
    def question(self) -> str:
        """What was asked."""
        ...

    @property
    def answer(self) -> str:
        """What was answered."""
        ...

    @property
    def truth_probability(self) -> float | None:
        """None for an empty answer."""
        ...

    @property
    def log_odds(self) -> float | None:
        """None for an empty answer."""
        ...

    @property
    def verdict(self) -> str:
        """What follows."""
        ...


def read_result(path: str | Path) -> dict[str, Any]:
    """A result of uqlm as a dictionary with `data` and `metadata`."""
    place = Path(path)
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"The file {str(path)!r} cannot be read ({error.strerror}); give a result of uqlm.") from None
    except ValueError:
        raise UserError(f"The file {str(path)!r} is no JSON; write it with json.dump({_WRITTEN}, file).") from None
    pairs_of(found, str(path))
    return dict(found)


def pairs_of(result: Any, name: str = "the result") -> list[tuple[str, str]]:
    """Prompts and responses."""
    data = result.get("data") if isinstance(result, Mapping) else None
    given = data if isinstance(data, Mapping) else {}
    prompts, responses = given.get("prompts"), given.get("responses")
    if not isinstance(prompts, list) or not isinstance(responses, list):
        raise UserError(
            f"No prompts and responses in {name!r}; wanted is a UQResult with both in its data, written with "
            f"json.dump({_WRITTEN}, file): its to_dict() has lost the prompts."
        )
    if len(prompts) != len(responses):
        raise UserError(f"{len(prompts)} prompts and {len(responses)} responses in {name!r}; there must be as many.")
    for place, pair in enumerate(zip(prompts, responses, strict=True)):
        if not all(isinstance(text, str) for text in pair):
            raise UserError(
                f"Prompt {place + 1} in {name!r} or its response is no text; conversations cannot be scored: give the "
                f"question alone as the prompt."
            )
    return list(zip(prompts, responses, strict=True))


def with_scores(result: Mapping[str, Any], scores: Iterable[Scored]) -> dict[str, Any]:
    """The same result with the columns of the detector."""
    found = list(scores)
    number = len(pairs_of(result))
    if len(found) != number:
        raise ValueError(f"{len(found)} scores for {number} responses")
    values = ([one.truth_probability for one in found], [one.log_odds for one in found], [one.verdict for one in found])
    metadata = {**(result.get("metadata") or {}), "anchorscope_columns": list(SCORES)}
    return {**result, "data": {**result["data"], **dict(zip(SCORES, values, strict=True))}, "metadata": metadata}


def result_of(scores: Iterable[Scored]) -> dict[str, Any]:
    """A result of nothing but a detector's scores."""
    found = list(scores)
    data = {"prompts": [one.question for one in found], "responses": [one.answer for one in found]}
    return with_scores({"data": data, "metadata": {}}, found)


def write_result(path: str | Path, result: Mapping[str, Any]) -> None:
    """As JSON, whole or not at all."""
    text = json.dumps(_plain(result), ensure_ascii=False, indent=1, allow_nan=False) + "\n"
    try:
        with replacing(Path(path)) as half_made:
            half_made.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"The file {str(path)!r} cannot be written ({error.strerror}); choose another place.") from None


def _plain(value: Any) -> Any:
    """Without what JSON has no word for: a number that is none becomes null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
