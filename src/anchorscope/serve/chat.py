"""`/v1/chat/completions` in OpenAI's form: one question, the model's answer, whole or in pieces, and its score."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import Field

from anchorscope.detectors.answer_batch import Draw, Piece, request_for_question
from anchorscope.serve.errors import ServiceError, as_service_error, internal_error
from anchorscope.serve.model_thread import Record
from anchorscope.serve.score import ERRORS, AboutDetector, Form, Risk, Sources, Written
from anchorscope.serve.service import Service

_Stop = Annotated[str, Field(min_length=1, max_length=100)]
_CHUNK = "chat.completion.chunk"


class Message(Form):
    """The question."""

    role: Literal["user"]
    content: Written


class ChatRequest(Sources, AboutDetector):
    """A question; it is asked in the detector's own prompt, the only one that a detector was trained under."""

    messages: list[Message] = Field(min_length=1, max_length=1, description="One user message, the question.")
    truth: Literal[True] = Field(True, description="Every answer is scored.")
    risk: Risk | None = Field(None, description="One of the detector's thresholds.")
    stream: bool = False
    stream_options: dict[str, bool] | None = Field(None, description="Not used: the last piece has `usage`.")
    temperature: float | None = Field(None, ge=0, le=2, description="0, the likeliest tokens, where none is given.")
    top_p: float | None = Field(None, gt=0, le=1)
    max_tokens: int | None = Field(None, ge=1, le=2**31)
    max_completion_tokens: int | None = Field(None, ge=1, le=2**31, description="Wins over `max_tokens`.")
    seed: int | None = Field(None, ge=-(2**63), le=2**63 - 1)
    stop: _Stop | Annotated[list[_Stop], Field(max_length=4)] | None = None
    n: Literal[1] | None = Field(None, description="One answer at a time.")
    user: Annotated[str, Field(max_length=1000)] | None = Field(None, description="Not used.")

    def draw(self) -> Draw:
        """How tokens are chosen."""
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        seed = None if self.seed is None else self.seed & (2**63 - 1)
        return Draw(self.temperature or 0.0, 1.0 if self.top_p is None else self.top_p, seed, stop)


def chat_router(service: Service) -> APIRouter:
    """The route that generates."""
    router = APIRouter()
    about = "OpenAI's chat completion, whole or with `stream` in pieces; a choice has a score, `truth`."
    answered = {"content": {"application/json": {}, "text/event-stream": {}}, "description": about}

    @router.post(
        "/v1/chat/completions",
        tags=["chat"],
        summary="An answer, and how probable it is",
        responses={**ERRORS, 200: answered},
    )
    async def chat(request: ChatRequest) -> Any:
        name, most = service.find_detector(request.model, request.detector), service.limits.answer_tokens
        detector, trained = service.loaded.detectors[name], service.trained[name]
        limit = request.max_completion_tokens or request.max_tokens or min(trained.setting.max_new_tokens, most)
        if limit > most:
            message = f"At most {most:,} tokens are written for a request; ask for fewer."
            raise ServiceError(422, "answer_too_long", message, param="max_tokens")
        question = request.ask(request.messages[0].content)
        service.count_tokens(question, "messages")
        service.log.user_text("user", question.question)
        wanted = await asyncio.to_thread(request_for_question, detector, question, limit, request.draw(), request.risk)
        threshold = trained.threshold(request.risk)
        risk = None if threshold is None else threshold.risk
        about_score = {"detector": name, "sha256": trained.sha256, "risk": risk}
        pieces = service.answer(wanted)
        first = await anext(pieces)  # what is wrong with the request shows here, before there is a status
        answer = _ChatAnswer(service, len(wanted.prompt.ids), about_score)
        if request.stream:
            events = answer.events(first, pieces)
            return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        text, last = first[0].text, first
        async for last in pieces:
            text += last[0].text
        return JSONResponse(answer.completion(text, *last))

    return router


class _ChatAnswer:
    """The response to one request, whole or as events."""

    def __init__(self, service: Service, prompt_tokens: int, about_score: Record) -> None:
        self.service, self.prompt_tokens, self.about_score = service, prompt_tokens, about_score
        self.head = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": service.model}

    def completion(self, text: str, last: Piece, record: Record | None) -> Record:
        """The whole answer."""
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": last.reason, "truth": self._truth(record)}
        return {**self.head, "object": "chat.completion", "choices": [choice], "usage": self._usage(last)}

    async def events(
        self, first: tuple[Piece, Record | None], rest: AsyncIterator[tuple[Piece, Record | None]]
    ) -> AsyncIterator[str]:
        """Server-sent events; an error after the first piece comes as the last event."""
        yield self._event({"role": "assistant", "content": first[0].text})
        try:
            last = first
            async for last in rest:
                if last[0].text:
                    yield self._event({"content": last[0].text})
            choice = {"index": 0, "delta": {}, "finish_reason": last[0].reason, "truth": self._truth(last[1])}
            yield _line({**self.head, "object": _CHUNK, "choices": [choice], "usage": self._usage(last[0])})
        except Exception as error:
            refusal = as_service_error(error)
            if refusal is None:
                self.service.log.fault(error, "stream")
                refusal = internal_error()
            yield _line({"error": refusal.record()})
        yield "data: [DONE]\n\n"

    def _event(self, delta: Record) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        return _line({**self.head, "object": _CHUNK, "choices": [choice]})

    def _truth(self, record: Record | None) -> Record:
        """The score, with the detector that it is from."""
        return {**(record or {}), **self.about_score}

    def _usage(self, last: Piece) -> dict[str, int]:
        prompt, new = self.prompt_tokens, last.new_tokens
        return {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}


def _line(record: Record) -> str:
    return f"data: {json.dumps(record)}\n\n"
