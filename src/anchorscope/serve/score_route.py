"""`/v1/score`, and what can be asked of the model and its detectors."""

import time
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from anchorscope.serve.errors import unknown_model
from anchorscope.serve.score_form import ErrorBody, ScoreRequest, ScoreResponse, item_record
from anchorscope.serve.service import Service

_ABOUT = {
    400: "no JSON",
    401: "no key, or one that is not known",
    404: "no such model or detector",
    408: "the body came too slowly",
    413: "too many items, too many tokens, or too many bytes",
    415: "the body is not called JSON",
    422: "a field is wrong, or no item could be scored",
    429: "too much is waiting; see Retry-After",
    500: "a mistake of ours",
    503: "loading, or shutting down",
    504: "the deadline passed",
}


def told(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Errors of a route, for the OpenAPI description."""
    return {status: {"model": ErrorBody, "description": _ABOUT[status]} for status in statuses}


ASKED = told(400, 401, 404, 408, 413, 415, 422, 429, 500, 503, 504)
READ = told(401, 404, 429, 500, 503)


def score_router(service: Service) -> APIRouter:
    """The routes that need no generation."""
    router = APIRouter()

    @router.post(
        "/v1/score",
        tags=["score"],
        summary="How probable it is that answers are true",
        responses=ASKED,
        response_model=ScoreResponse,
        response_model_exclude_unset=True,
    )
    async def score(wanted: ScoreRequest) -> Any:
        service.refuse_other_model(wanted.model)
        pairs = [(one.question, one.answer) for one in wanted.items]
        for one in pairs:
            service.log.said("item", " → ".join(one))
        scored = await service.score(pairs, wanted.detector, wanted.risk)
        rows = [item_record(one.id, found) for one, found in zip(wanted.items, scored.found, strict=True)]
        return JSONResponse(
            {
                "object": "list",
                "model": service.model,
                "detector": scored.detector,
                "sha256": service.trained[scored.detector].sha256,
                "risk": scored.risk,
                "items": rows,
            }
        )

    @router.get("/v1/models", tags=["about"], summary="The model that is served", responses=READ)
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [_model(service)]}

    @router.get("/v1/models/{model:path}", tags=["about"], summary="The same by its name", responses=READ)
    async def model(model: str) -> dict[str, Any]:
        if model not in ("default", service.model):
            raise unknown_model()
        return _model(service)

    @router.get("/v1/detectors", tags=["about"], summary="The detectors, and how good they are", responses=READ)
    async def detectors() -> dict[str, Any]:
        data = [_detector(service, name) for name in service.trained]
        return {"object": "list", "default": service.default, "data": data}

    return router


_STARTED = int(time.time())


def _model(service: Service) -> dict[str, Any]:
    lm = service.lm
    dtype = str(lm.dtype).removeprefix("torch.")
    return {
        "id": service.model,
        "object": "model",
        "created": _STARTED,
        "owned_by": "anchorscope",
        "context": lm.context,
        "dtype": dtype,
        "layers": lm.n_layers,
    }


def _detector(service: Service, name: str) -> dict[str, Any]:
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
