"""The routes: `/v1/score`, `/v1/explain`, those about model and detectors, and `/v1/chat/completions` in OpenAI's form.

A chat is one question, the model's answer and its score. The score is that of a whole answer, so a stream begins when
the answer has ended.
"""

import secrets
import time
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from anchorscope.datasets.question import Question, Unusable, question_from_row
from anchorscope.detectors.bundle_files import training_data
from anchorscope.detectors.detector import DRAWS, MOST_ALONE, live_cuts
from anchorscope.detectors.verdict import Verdict
from anchorscope.json_text import to_json
from anchorscope.serve.errors import ServiceError, invalid_request
from anchorscope.serve.model_thread import Draw, Record, score_records
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
        None,
        description="A passage before the question, or several; adds `context_used` to the score.",
    )
    thinking: Text | None = Field(
        None, description="What was written between question and answer."
    )

    def ask(
        self, question: str, answer: str | None = None, number: int = 0
    ) -> Question:
        """The question with its sources; thinking marks in the answer are split off."""
        row = {
            "question": question,
            "model_answer": answer,
            "context": self.context,
            "thinking": self.thinking,
        }
        try:
            return question_from_row(row, "score", number + 1, graded=False)
        except Unusable as error:
            reason = str(error).partition(", not ")[0]  # what follows repeats the text
            raise invalid_request(
                f"Item {number + 1}: {reason}.", f"items[{number}]"
            ) from None


class ScoreItem(Sources):
    """A question and an answer to it."""

    id: Name | None = Field(None, description="Comes back with the score.")
    question: Written
    answer: Text = Field(
        description="An empty one gets the verdict `unsure` and no probability."
    )


class AboutDetector(Form):
    """Which detector is asked."""

    detector: Name | None = Field(
        None, description="An id of `/v1/detectors`; the first one where none is named."
    )
    model: Name | None = Field(None, description="The model's name or `default`.")


class ScoreRequest(AboutDetector):
    """Answers to score."""

    items: list[ScoreItem] = Field(min_length=1, max_length=_MOST_ITEMS)
    risk: Risk | None = Field(
        None,
        description="The largest share of wrong answers among accepted ones; the detector's next smaller one is used.",
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

    truth_probability: float | None = Field(
        None, description="Null where there is no answer to score."
    )
    log_odds: float | None = None
    verdict: Verdict | None = None
    warnings: list[str] = []
    context_used: float | None = Field(
        None, description="Share of its probability that goes without `context`."
    )
    context_probability: float | None = Field(
        None,
        description="That the answer follows the context; `context_low` to `context_high` is its 95 % interval.",
    )
    context_low: float | None = None
    context_high: float | None = None
    passage: int | None = Field(
        None,
        description="Of several passages the one that it rests on, counted from 1.",
    )


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
    answer: Text | None = Field(
        None, description="The model gives one where there is none."
    )
    cut: list[Annotated[int, Field(ge=0, le=100_000)]] | None = Field(
        None,
        max_length=4096,
        description="Numbers of `words`, counted from 0, that are cut together in their own run.",
    )


ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorBody},
    "5XX": {"model": ErrorBody},
}
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
        questions = [
            item.ask(item.question, item.answer, number)
            for number, item in enumerate(request.items)
        ]
        results = await service.score(questions, name, request.risk)
        return JSONResponse(
            {
                "object": "list",
                "model": service.model,
                "detector": name,
                "sha256": service.trained[name].sha256,
                "risk": None if threshold is None else threshold.risk,
                "items": [
                    {
                        "id": item.id,
                        **(
                            result
                            if isinstance(result, dict)
                            else {**_NO_SCORE, "error": result.record()}
                        ),
                    }
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
            score, record = live_cuts(detector, question, request.cut, most)
            return {**record, "score": score_records(detector, [question], [score])[0]}

        record = await service.run_model(tokens, explain_answer)
        about = {
            "model": service.model,
            "detector": name,
            "sha256": service.trained[name].sha256,
        }
        return JSONResponse({"object": "explanation", **about, **record})

    @router.get(
        "/v1/models",
        tags=["about"],
        summary="The model that is served",
        responses=ERRORS,
    )
    async def models() -> Record:
        lm = service.loaded.lm
        model = {
            "id": service.model,
            "object": "model",
            "created": started,
            "owned_by": "anchorscope",
        }
        facts = {
            "context": lm.context,
            "dtype": str(lm.dtype).removeprefix("torch."),
            "layers": lm.n_layers,
        }
        return {"object": "list", "data": [{**model, **facts}]}

    @router.get(
        "/v1/detectors",
        tags=["about"],
        summary="The detectors, and how good they are",
        responses=ERRORS,
    )
    async def detectors() -> Record:
        data = [_detector_record(service, name) for name in service.trained]
        return {"object": "list", "default": service.default, "data": data}

    return router


_NO_SCORE: Record = {
    **dict.fromkeys(("truth_probability", "log_odds", "verdict")),
    "warnings": [],
}


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
        "data": training_data(trained.card.data),
        "thresholds": [asdict(threshold) for threshold in trained.thresholds],
    }


_Stop = Annotated[str, Field(min_length=1, max_length=100)]


class TextPart(Form):
    """A piece of a message."""

    type: Literal["text"]
    text: Text


def _refuse_other_parts(content: Any) -> Any:
    parts = content if isinstance(content, list) else []
    kinds = [part.get("type") for part in parts if isinstance(part, dict)]
    if not isinstance(content, str | list) or kinds != ["text"] * len(parts):
        raise ValueError("only text can be read: one text, or parts of the type text")
    return content


class Message(Form):
    """The question, or what a client tells every model beforehand."""

    role: Literal["system", "developer", "user"]
    content: Annotated[
        Written | Annotated[list[TextPart], Field(min_length=1, max_length=64)],
        BeforeValidator(_refuse_other_parts),
    ]
    name: Name | None = Field(None, description="Not used.")

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content)


_ONLY: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
}
"""OpenAI's parameters that would change the answer, and the values with which they do not."""
_NOT_USED = (
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "parallel_tool_calls",
    "prediction",
)
"""Those that change no answer."""
_SYSTEM_UNUSED = "the system message was not used: a detector knows its own prompt only"


class ChatRequest(Sources, AboutDetector):
    """A question; it is asked in the detector's own prompt, the only one that a detector was trained under.

    OpenAI's other parameters are taken where they change nothing (`"n": 1`, `"presence_penalty": 0`), else refused.
    """

    messages: list[Message] = Field(
        min_length=1,
        max_length=16,
        description="One user message, the question; system messages are not used, which a warning says.",
    )
    truth: Literal[True] = Field(True, description="Every answer is scored.")
    risk: Risk | None = Field(None, description="As in ScoreRequest.")
    stream: bool = False
    stream_options: dict[str, bool] | None = Field(
        None, description="Not used: the last piece has `usage`."
    )
    temperature: float | None = Field(
        None, ge=0, le=2, description="0, the likeliest tokens, where none is given."
    )
    top_p: float | None = Field(None, gt=0, le=1)
    max_tokens: int | None = Field(None, ge=1, le=2**31)
    max_completion_tokens: int | None = Field(
        None, ge=1, le=2**31, description="Wins over `max_tokens`."
    )
    seed: int | None = Field(None, ge=-(2**63), le=2**63 - 1)
    stop: _Stop | Annotated[list[_Stop], Field(max_length=4)] | None = None

    @model_validator(mode="before")
    @classmethod
    def leave_out_what_changes_nothing(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        for name, allowed in _ONLY.items():
            if body.get(name) is not None and body[name] not in allowed:
                only = " or ".join(map(to_json, allowed))
                raise invalid_request(f"{name}: only {only} is supported here.", name)
        ignored = {*_ONLY, *_NOT_USED}
        return {name: value for name, value in body.items() if name not in ignored}

    def question(self) -> str:
        texts = [message.text for message in self.messages if message.role == "user"]
        if len(texts) != 1:
            raise invalid_request(
                "messages: give one message of the role user, the question; a conversation cannot be continued here.",
                "messages",
            )
        return texts[0]

    def draw(self) -> Draw:
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        seed = None if self.seed is None else self.seed & (2**63 - 1)
        return Draw(
            self.temperature or 0.0,
            1.0 if self.top_p is None else self.top_p,
            seed,
            stop,
        )


def chat_router(service: Service) -> APIRouter:
    """The route that generates."""
    router = APIRouter()
    about = "OpenAI's chat completion, with `stream` as events; a choice has a score, `truth`."
    answered = {
        "content": {"application/json": {}, "text/event-stream": {}},
        "description": about,
    }

    @router.post(
        "/v1/chat/completions",
        tags=["chat"],
        summary="An answer, and how probable it is",
        responses={**ERRORS, 200: answered},
    )
    async def chat(request: ChatRequest) -> Any:
        name, most = (
            service.find_detector(request.model, request.detector),
            service.limits.answer_tokens,
        )
        trained = service.trained[name]
        limit = (
            request.max_completion_tokens
            or request.max_tokens
            or min(trained.setting.max_new_tokens, most)
        )
        if limit > most:
            message = (
                f"At most {most:,} tokens are written for a request; ask for fewer."
            )
            raise ServiceError(422, "answer_too_long", message, param="max_tokens")
        question = request.ask(request.question())
        service.log.user_text("user", question.question)
        threshold = trained.threshold(request.risk)
        answer = await service.answer(
            question, name, limit, request.draw(), request.risk
        )
        risk = None if threshold is None else threshold.risk
        has_system = any(message.role != "user" for message in request.messages)
        truth = {
            **answer.score,
            "warnings": [*answer.score["warnings"], *[_SYSTEM_UNUSED] * has_system],
            "detector": name,
            "sha256": trained.sha256,
            "risk": risk,
        }
        about_answer = {"finish_reason": answer.reason, "truth": truth}
        new, prompt = answer.new_tokens, answer.prompt_tokens
        head = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": service.model,
        }
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": new,
            "total_tokens": prompt + new,
        }
        written = {"role": "assistant", "content": answer.text}
        if request.stream:
            first = {"index": 0, "delta": written, "finish_reason": None}
            last = {"index": 0, "delta": {}, **about_answer}
            chunk = {**head, "object": "chat.completion.chunk"}
            chunks = (
                {**chunk, "choices": [first]},
                {**chunk, "choices": [last], "usage": usage},
            )
            events = (f"data: {text}\n\n" for text in (*map(to_json, chunks), "[DONE]"))
            return StreamingResponse(
                events,
                media_type="text/event-stream",
                headers={"Cache-Control": "no-store"},
            )
        choice = {"index": 0, "message": written, **about_answer}
        return JSONResponse(
            {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
        )

    return router
