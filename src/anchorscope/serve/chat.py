"""`/v1/chat/completions` in OpenAI's form: one question, the model's answer and its score.

The score is that of a whole answer, so a stream begins when the answer has ended.
"""

import json
import secrets
import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import Field

from anchorscope.serve.errors import ServiceError
from anchorscope.serve.model_thread import Draw
from anchorscope.serve.score import ERRORS, AboutDetector, Form, Risk, Sources, Written
from anchorscope.serve.service import Service

_Stop = Annotated[str, Field(min_length=1, max_length=100)]


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
    about = "OpenAI's chat completion, with `stream` as events; a choice has a score, `truth`."
    answered = {"content": {"application/json": {}, "text/event-stream": {}}, "description": about}

    @router.post(
        "/v1/chat/completions",
        tags=["chat"],
        summary="An answer, and how probable it is",
        responses={**ERRORS, 200: answered},
    )
    async def chat(request: ChatRequest) -> Any:
        name, most = service.find_detector(request.model, request.detector), service.limits.answer_tokens
        trained = service.trained[name]
        limit = request.max_completion_tokens or request.max_tokens or min(trained.setting.max_new_tokens, most)
        if limit > most:
            message = f"At most {most:,} tokens are written for a request; ask for fewer."
            raise ServiceError(422, "answer_too_long", message, param="max_tokens")
        question = request.ask(request.messages[0].content)
        service.log.user_text("user", question.question)
        threshold = trained.threshold(request.risk)
        answer = await service.answer(question, name, limit, request.draw(), request.risk)
        risk = None if threshold is None else threshold.risk
        truth = {**answer.score, "detector": name, "sha256": trained.sha256, "risk": risk}
        about_answer = {"finish_reason": answer.reason, "truth": truth}
        new, prompt = answer.new_tokens, answer.prompt_tokens
        head = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": service.model}
        usage = {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}
        said = {"role": "assistant", "content": answer.text}
        if request.stream:
            first = {"index": 0, "delta": said, "finish_reason": None}
            last = {"index": 0, "delta": {}, **about_answer}
            chunk = {**head, "object": "chat.completion.chunk"}
            chunks = ({**chunk, "choices": [first]}, {**chunk, "choices": [last], "usage": usage})
            events = (f"data: {text}\n\n" for text in (*map(json.dumps, chunks), "[DONE]"))
            return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        choice = {"index": 0, "message": said, **about_answer}
        return JSONResponse({**head, "object": "chat.completion", "choices": [choice], "usage": usage})

    return router
