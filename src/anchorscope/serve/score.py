"""`/v1/score`, the routes about the model and its detectors, and the record of a score that all routes share."""

import time
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from anchorscope.detectors.trained import Score
from anchorscope.serve.errors import ServiceError, unknown_model
from anchorscope.serve.service import Service

Name = Annotated[str, Field(max_length=200)]
Risk = Annotated[float, Field(gt=0, lt=1)]
NOT_BLANK = r"\S"
"""A text with at least one character that is no blank."""


class Form(BaseModel):
    """A part of a request: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class ScoreItem(Form):
    """A question and an answer to it."""

    id: Name | None = Field(None, description="Comes back with the score.")
    question: str = Field(min_length=1, pattern=NOT_BLANK)
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
    """Every error has this form, which is OpenAI's."""

    error: ErrorRecord


class ScoreRecord(BaseModel):
    """What a detector says of one answer."""

    truth_probability: float | None = Field(None, description="Null where there is no answer to score.")
    log_odds: float | None = None
    verdict: str | None = Field(None, description="accept, abstain or out-of-range.")
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


_STATUSES = {
    400: "no JSON",
    401: "no key, or a wrong one",
    404: "no such model or detector",
    408: "the body came too slowly",
    413: "too many items, too many tokens, or too many bytes",
    415: "the body is not declared as JSON",
    422: "a field is wrong, or no item could be scored",
    429: "too much is waiting; see Retry-After",
    500: "a fault of the service",
    503: "loading, shutting down, or out of memory",
    504: "the deadline passed",
}
POST_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": about} for status, about in _STATUSES.items()
}
"""Errors of the routes that take a body, for the OpenAPI description."""
_GET_ERRORS: dict[int | str, dict[str, Any]] = {status: POST_ERRORS[status] for status in (401, 404, 429, 500, 503)}


def score_record(score: Score) -> dict[str, Any]:
    """A score as JSON."""
    return {
        "truth_probability": score.truth_probability,
        "log_odds": score.log_odds,
        "verdict": score.verdict,
        "warnings": list(score.warnings),
    }


def _item_record(name: str | None, result: Score | ServiceError) -> dict[str, Any]:
    """An item of the response; `error` is there only where there is one."""
    if isinstance(result, ServiceError):
        none: dict[str, Any] = dict.fromkeys(("truth_probability", "log_odds", "verdict"))
        return {"id": name, **none, "warnings": [], "error": result.record()}
    return {"id": name, **score_record(result)}


def score_router(service: Service) -> APIRouter:
    """The routes that need no generation."""
    router, started = APIRouter(), int(time.time())

    @router.post(
        "/v1/score",
        tags=["score"],
        summary="How probable it is that answers are true",
        responses=POST_ERRORS,
        response_model=ScoreResponse,
        response_model_exclude_unset=True,
    )
    async def score(request: ScoreRequest) -> Any:
        service.refuse_other_model(request.model)
        for item in request.items:
            service.log.user_text("item", f"{item.question} → {item.answer}")
        pairs = [(item.question, item.answer) for item in request.items]
        scored = await service.score(pairs, request.detector, request.risk)
        items = [_item_record(item.id, result) for item, result in zip(request.items, scored.results, strict=True)]
        return JSONResponse(
            {
                "object": "list",
                "model": service.model,
                "detector": scored.detector,
                "sha256": service.trained[scored.detector].sha256,
                "risk": scored.risk,
                "items": items,
            }
        )

    def model_record() -> dict[str, Any]:
        lm = service.loaded.lm
        return {
            "id": service.model,
            "object": "model",
            "created": started,
            "owned_by": "anchorscope",
            "context": lm.context,
            "dtype": str(lm.dtype).removeprefix("torch."),
            "layers": lm.n_layers,
        }

    @router.get("/v1/models", tags=["about"], summary="The model that is served", responses=_GET_ERRORS)
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [model_record()]}

    @router.get("/v1/models/{model:path}", tags=["about"], summary="The same by its name", responses=_GET_ERRORS)
    async def model(model: str) -> dict[str, Any]:
        if model not in ("default", service.model):
            raise unknown_model()
        return model_record()

    @router.get("/v1/detectors", tags=["about"], summary="The detectors, and how good they are", responses=_GET_ERRORS)
    async def detectors() -> dict[str, Any]:
        data = [_detector_record(service, name) for name in service.trained]
        return {"object": "list", "default": service.default, "data": data}

    return router


def _detector_record(service: Service, name: str) -> dict[str, Any]:
    """What a user has to know before trusting it."""
    trained = service.trained[name]
    setting, card = trained.setting, trained.card
    return {
        "id": name,
        "object": "detector",
        "sha256": trained.sha256,
        "model": setting.model,
        "prompt": setting.template.kind,
        "position": setting.position,
        "dtype": setting.dtype,
        "max_new_tokens": setting.max_new_tokens,
        "data": card.data,
        "quality": [dict(row) for row in card.quality],
        "calibration": [dict(row) for row in card.calibration],
        "shifts": list(card.shifts),
        "limits": list(card.limits),
        "versions": dict(card.versions),
        "thresholds": [
            {"risk": one.risk, "probability": one.probability, "coverage": one.coverage, "n": one.n}
            for one in trained.thresholds
        ],
    }
