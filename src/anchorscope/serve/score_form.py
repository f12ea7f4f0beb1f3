"""What `/v1/score` is asked and answers, and the record of a score that all routes share."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from anchorscope.detectors.trained import Score
from anchorscope.serve.errors import ServiceError

Name = Annotated[str, Field(max_length=200)]
Risk = Annotated[float, Field(gt=0, lt=1)]
WORDS = r"\S"
"""A text with at least one character that is no blank."""


class Form(BaseModel):
    """A part of a request: nothing that is not asked for is taken."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class ScoreItem(Form):
    """A question and an answer to it."""

    id: Name | None = Field(None, description="Comes back with the score.")
    question: str = Field(min_length=1, pattern=WORDS)
    answer: str = Field(description="An empty one gets the verdict `abstain` and no probability.")


class ScoreRequest(Form):
    """Answers to score."""

    items: list[ScoreItem] = Field(min_length=1)
    detector: Name | None = Field(None, description="An id of `/v1/detectors`; the first one where none is named.")
    model: Name | None = Field(None, description="The model's name or `default`.")
    risk: Risk | None = Field(
        None, description="The share of wrong answers among accepted ones; one of the detector's thresholds."
    )


class ErrorRecord(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """Every error is told in this form, which is OpenAI's."""

    error: ErrorRecord


class ScoreRecord(BaseModel):
    """What a detector says of one answer."""

    truth_probability: float | None = Field(None, description="Null where there is no answer to score.")
    log_odds: float | None = None
    verdict: str | None = Field(None, description="accept, abstain or out-of-range.")
    pathway: float | None = Field(
        None,
        description="What cutting the question's key words changes in the log-odds of "
        "a probe; null where the detector does not read it.",
    )
    warnings: list[str] = []


class ScoredItem(ScoreRecord):
    """One item's score, or why there is none."""

    id: str | None
    error: ErrorRecord | None = None


class ScoreResponse(BaseModel):
    """Scores, in the order of the items."""

    object: str = "list"
    model: str
    detector: str
    sha256: str | None
    risk: float | None
    items: list[ScoredItem]


class Truth(ScoreRecord):
    """A score with the detector that it is from, as `choices[0].truth` of a chat."""

    detector: str
    sha256: str | None
    risk: float | None


def score_record(score: Score) -> dict[str, Any]:
    """A score as JSON."""
    return {
        "truth_probability": score.truth_probability,
        "log_odds": score.log_odds,
        "verdict": score.verdict,
        "pathway": score.pathway_score,
        "warnings": list(score.warnings),
    }


def item_record(name: str | None, found: Score | ServiceError) -> dict[str, Any]:
    """An item of the answer; `error` is there only where there is one."""
    if isinstance(found, ServiceError):
        none: dict[str, Any] = dict.fromkeys(("truth_probability", "log_odds", "verdict", "pathway"))
        return {"id": name, **none, "warnings": [], "error": found.record()}
    return {"id": name, **score_record(found)}
