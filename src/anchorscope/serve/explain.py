"""`/v1/explain`: what one answer's score depends on, with the question's key words cut live."""

from typing import Annotated, Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from anchorscope.detectors.live_cuts import live_cuts, tokens_at_most
from anchorscope.detectors.trained import TrainedDetector
from anchorscope.serve.errors import ServiceError
from anchorscope.serve.score import NOT_BLANK, POST_ERRORS, Form, Name, ScoreRecord, score_record
from anchorscope.serve.service import Service

_MOST_ITEMS = 4  # items' worth of tokens: one answer is run many times, and others wait for the model meanwhile

Layers = list[float | None]
WordNumber = Annotated[int, Field(ge=0, le=100_000)]


class ExplainRequest(Form):
    """A question and an answer to explain."""

    question: str = Field(min_length=1, pattern=NOT_BLANK)
    answer: str | None = Field(None, description="The model gives one where there is none.")
    cut: list[WordNumber] | None = Field(
        None,
        max_length=4096,
        description="Numbers of words of the question, counted "
        "from 0 as in `words`, that are cut together in their own run.",
    )
    detector: Name | None = Field(None, description="An id of `/v1/detectors`; the first one where none is named.")
    model: Name | None = Field(None, description="The model's name or `default`.")


class Word(BaseModel):
    """Something of the question that can be cut."""

    start: int = Field(description="Characters [start, end) of the question.")
    end: int
    text: str
    key: bool = Field(description="Whether it is a key word, which may be several words long.")


class CutScoreRecord(BaseModel):
    """What the detector says of the states without the key words."""

    truth_probability: float
    log_odds: float
    out_of_range: bool


class ExplainResponse(BaseModel):
    """Everything per layer has one number for each of `layers`; null where there is none."""

    object: str
    model: str
    detector: str
    sha256: str | None
    question: str
    answer: str
    generated: bool = Field(description="Whether the model gave the answer.")
    score: ScoreRecord
    score_cut: CutScoreRecord | None = Field(description="Null without key words, and where the detector reads a cut.")
    calibration: dict[str, float] | None = Field(description="What was so in testing where the detector said so.")
    words: list[Word]
    key_words_by: str
    chosen: list[int] | None
    position: str
    edges: str
    n_layers: int
    site: str | None
    layers: list[int]
    reference_layer: int | None
    probability: dict[str, Any] | None = Field(description="Of 'truthful' by the probe of each layer.")
    delta_p: dict[str, Any] | None = Field(description="Its change under each cut, in percentage points.")
    note: str = Field(description="What numbers of a single answer cannot say.")
    training: dict[str, Any] | None = Field(description="The same of the answers of training, as means over many.")
    warnings: list[str]


def explain_router(service: Service) -> APIRouter:
    """The route."""
    router = APIRouter()

    @router.post(
        "/v1/explain",
        tags=["score"],
        summary="What a score rests on: key words cut, layer by layer",
        responses=POST_ERRORS,
        response_model=ExplainResponse,
    )
    async def explain(request: ExplainRequest) -> Any:
        service.refuse_other_model(request.model)
        name = service.detector_id(request.detector)
        detector, trained = service.loaded.detectors[name], service.trained[name]
        service.refuse_long_text(request.question, "question")
        service.refuse_long_text(request.answer or "", "answer")
        pair, most = (request.question, request.answer), service.limits.answer_tokens
        tokens = await service.prepare(lambda: tokens_at_most(detector, *pair, most))
        if tokens > _MOST_ITEMS * service.limits.item_tokens:
            message = "The text is too long to be run once for every word; shorten it."
            raise ServiceError(413, "item_too_long", message, param="question")
        cuts = await service.run_model(tokens, lambda: live_cuts(detector, *pair, request.cut, most))
        return JSONResponse(
            {
                "object": "explanation",
                "model": service.model,
                "detector": name,
                "sha256": trained.sha256,
                "calibration": _calibration_at(trained, cuts.score.truth_probability),
                **cuts.record(),
                "score": score_record(cuts.score),
            }
        )

    return router


def _calibration_at(trained: TrainedDetector, probability: float | None) -> dict[str, Any] | None:
    """The bin of the card's calibration that a probability falls into; None where the card has none there."""
    if probability is None:
        return None
    for row in trained.card.calibration:
        if row["low"] < probability <= row["high"] or row["low"] == probability == 0:
            return dict(row)
    return None
