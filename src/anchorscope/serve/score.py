"""`/v1/score`, `/v1/explain`, the routes about model and detectors, and what their requests share with chats."""

import time
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from anchorscope.datasets.question import Question, Unusable, question_from_row
from anchorscope.detectors.detector import DRAWS, MOST_ALONE, live_cuts
from anchorscope.serve.errors import ServiceError, invalid_request
from anchorscope.serve.model_thread import Record, score_records
from anchorscope.serve.service import Service

Name = Annotated[str, Field(max_length=200)]
Risk = Annotated[float, Field(gt=0, lt=1)]
Text = Annotated[str, Field(max_length=2**16)]
Written = Annotated[str, Field(min_length=1, max_length=2**16, pattern=r"\S")]
"""A text with at least one character that is no blank."""
_MOST_ITEMS = 256  # of one request
_MOST_RUNS = 3 + DRAWS + MOST_ALONE  # of one answer that is explained
_MOST_EXPLAINED = 8  # items' worth of tokens: others wait for the model meanwhile


class Form(BaseModel):
    """A part of a request: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Sources(Form):
    """What the model reads beside the question."""

    context: Text | Annotated[list[Text], Field(max_length=64)] | None = Field(
        None, description="A passage before the question, or several; adds `context_used` to the score."
    )
    thinking: Text | None = Field(None, description="What was written between question and answer.")

    def ask(self, question: str, answer: str | None = None, number: int = 0) -> Question:
        """The question with its sources; thinking marks in the answer are split off."""
        row = {"question": question, "model_answer": answer, "context": self.context, "thinking": self.thinking}
        try:
            return question_from_row(row, "score", number + 1, graded=False)
        except Unusable as error:
            reason = str(error).partition(", not ")[0]  # what follows repeats the text
            raise invalid_request(f"Item {number + 1}: {reason}.", f"items[{number}]") from None


class ScoreItem(Sources):
    """A question and an answer to it."""

    id: Name | None = Field(None, description="Comes back with the score.")
    question: Written
    answer: Text = Field(description="An empty one gets the verdict `abstain` and no probability.")


class AboutDetector(Form):
    """Which detector is asked."""

    detector: Name | None = Field(None, description="An id of `/v1/detectors`; the first one where none is named.")
    model: Name | None = Field(None, description="The model's name or `default`.")


class ScoreRequest(AboutDetector):
    """Answers to score."""

    items: list[ScoreItem] = Field(min_length=1, max_length=_MOST_ITEMS)
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
    context_used: float | None = Field(None, description="Share of its probability that goes without `context`.")
    context_probability: float | None = Field(
        None, description="That the answer follows the context; `context_low` to `context_high` is its 95 % interval."
    )
    context_low: float | None = None
    context_high: float | None = None
    passage: int | None = Field(None, description="Of several passages the one that it rests on, counted from 1.")


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


class ExplainRequest(Sources, AboutDetector):
    """A question and an answer to explain."""

    question: Written
    answer: Text | None = Field(None, description="The model gives one where there is none.")
    cut: list[Annotated[int, Field(ge=0, le=100_000)]] | None = Field(
        None, max_length=4096, description="Numbers of `words`, counted from 0, that are cut together in their own run."
    )


ERRORS: dict[int | str, dict[str, Any]] = {"4XX": {"model": ErrorBody}, "5XX": {"model": ErrorBody}}
"""For the OpenAPI description; docs/serving.md has what each status means."""


def score_router(service: Service) -> APIRouter:
    """The routes that write no text."""
    router, started = APIRouter(), int(time.time())

    @router.post(
        "/v1/score",
        tags=["score"],
        summary="How probable it is that answers are true",
        responses=ERRORS,
        response_model=ScoreResponse,
    )
    async def score(request: ScoreRequest) -> Any:
        name = service.find_detector(request.model, request.detector)
        threshold = service.trained[name].threshold(request.risk)
        for item in request.items:
            service.log.user_text("item", f"{item.question} → {item.answer}")
        questions = [item.ask(item.question, item.answer, number) for number, item in enumerate(request.items)]
        results = await service.score(questions, name, request.risk)
        return JSONResponse(
            {
                "object": "list",
                "model": service.model,
                "detector": name,
                "sha256": service.trained[name].sha256,
                "risk": None if threshold is None else threshold.risk,
                "items": [
                    {"id": item.id, **(result if isinstance(result, dict) else {**_NO_SCORE, "error": result.record()})}
                    for item, result in zip(request.items, results, strict=True)
                ],
            }
        )

    @router.post(
        "/v1/explain",
        tags=["score"],
        summary="What a score depends on: the detector's probability with key words cut",
        responses=ERRORS,
    )
    async def explain(request: ExplainRequest) -> Any:
        name = service.find_detector(request.model, request.detector)
        detector, most = service.loaded.detectors[name], service.limits.answer_tokens
        question = request.ask(request.question, request.answer)
        tokens = _MOST_RUNS * service.count_tokens(question, "question")
        if tokens > _MOST_EXPLAINED * service.limits.item_tokens:
            message = "The text is too long to be run once for every word; shorten it."
            raise ServiceError(413, "item_too_long", message, param="question")

        def explain_answer() -> Record:
            score, record = live_cuts(detector, question, None, request.cut, most)
            return {**record, "score": score_records(detector, [question], [score])[0]}

        record = await service.run_model(tokens, explain_answer)
        about = {"model": service.model, "detector": name, "sha256": service.trained[name].sha256}
        return JSONResponse({"object": "explanation", **about, **record})

    @router.get("/v1/models", tags=["about"], summary="The model that is served", responses=ERRORS)
    async def models() -> Record:
        lm = service.loaded.lm
        model = {"id": service.model, "object": "model", "created": started, "owned_by": "anchorscope"}
        facts = {"context": lm.context, "dtype": str(lm.dtype).removeprefix("torch."), "layers": lm.n_layers}
        return {"object": "list", "data": [{**model, **facts}]}

    @router.get("/v1/detectors", tags=["about"], summary="The detectors, and how good they are", responses=ERRORS)
    async def detectors() -> Record:
        data = [_detector_record(service, name) for name in service.trained]
        return {"object": "list", "default": service.default, "data": data}

    return router


_NO_SCORE: Record = {**dict.fromkeys(("truth_probability", "log_odds", "verdict")), "warnings": []}


def _detector_record(service: Service, name: str) -> Record:
    """What a user has to know before trusting it: its card, its thresholds, and where it reads."""
    trained = service.trained[name]
    setting = trained.setting
    return {
        "id": name,
        "object": "detector",
        "sha256": trained.sha256,
        "model": setting.model,
        "prompt": setting.template.kind,
        "position": setting.position,
        "dtype": setting.dtype,
        "max_new_tokens": setting.max_new_tokens,
        **asdict(trained.card),
        "thresholds": [asdict(threshold) for threshold in trained.thresholds],
    }
