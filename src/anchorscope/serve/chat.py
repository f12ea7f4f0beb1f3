"""`/v1/chat/completions` in OpenAI's form: the model answers, whole or in pieces; with `truth` the answer is scored."""

import json
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import Field

from anchorscope.answers.template import SWITCHES, TemplateRefused, render_chat
from anchorscope.detectors.answer_batch import AnswerRequest, Draw, Piece, request_for_prompt, request_for_question
from anchorscope.errors import UserError
from anchorscope.models.language_model import LanguageModel
from anchorscope.serve.errors import ServiceError, internal_error, invalid_request
from anchorscope.serve.score import POST_ERRORS, Form, Name, Risk, score_record
from anchorscope.serve.service import Service

_USUAL_TOKENS = 256  # of an answer in a conversation, where the request does not say
_Stop = Annotated[str, Field(min_length=1, max_length=100)]
_Zero = Annotated[float, Field(ge=0, le=0)]


class TextPart(Form):
    """A piece of a message."""

    type: Literal["text"]
    text: str


class Message(Form):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str | list[TextPart]
    name: Name | None = Field(None, description="Not used.")

    @property
    def text(self) -> str:
        """The whole turn."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class StreamOptions(Form):
    """What a stream holds beside its pieces."""

    include_usage: bool = False


class ChatRequest(Form):
    """A conversation to continue."""

    model: Name = Field("default", description="The model's name or `default`.")
    messages: list[Message] = Field(min_length=1, max_length=1000)
    truth: bool = Field(
        False,
        description="Whether the answer is scored. Then `messages` is one user message, the "
        "question; it is asked in the detector's own prompt.",
    )
    detector: Name | None = Field(None, description="With `truth`: an id of `/v1/detectors`.")
    risk: Risk | None = Field(None, description="With `truth`: one of the detector's thresholds.")
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(None, ge=0, le=2, description="0, the likeliest tokens, where none is given.")
    top_p: float | None = Field(None, gt=0, le=1)
    max_tokens: int | None = Field(None, ge=1, le=2**31)
    max_completion_tokens: int | None = Field(None, ge=1, le=2**31, description="Wins over `max_tokens`.")
    seed: int | None = Field(None, ge=-(2**63), le=2**63 - 1)
    stop: _Stop | Annotated[list[_Stop], Field(max_length=4)] | None = None
    n: Literal[1] | None = Field(None, description="One answer at a time.")
    user: Annotated[str, Field(max_length=1000)] | None = Field(None, description="Not used.")
    frequency_penalty: _Zero | None = None
    presence_penalty: _Zero | None = None
    logprobs: Literal[False] | None = None

    def draw(self) -> Draw:
        """How tokens are chosen."""
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        seed = None if self.seed is None else self.seed & (2**63 - 1)
        return Draw(self.temperature or 0.0, 1.0 if self.top_p is None else self.top_p, seed, stop)


def chat_router(service: Service) -> APIRouter:
    """The route that generates."""
    router = APIRouter()
    about = "OpenAI's chat completion, whole or with `stream` in pieces; with `truth`, a choice has a score, `truth`."
    answered = {"content": {"application/json": {}, "text/event-stream": {}}, "description": about}

    @router.post(
        "/v1/chat/completions",
        tags=["chat"],
        summary="An answer, and with `truth` how probable it is",
        responses={**POST_ERRORS, 200: answered},
    )
    async def chat(request: ChatRequest) -> Any:
        service.refuse_other_model(request.model)
        wanted = await _answer_request(service, request)
        for message in request.messages:
            service.log.user_text(message.role, message.text)
        pieces = service.answer(wanted)
        first = await anext(pieces)  # what is wrong with the request shows here, before there is a status
        answer = _ChatAnswer(service, request, wanted)
        if request.stream:
            headers = {"Cache-Control": "no-store"}
            return StreamingResponse(answer.events(first, pieces), media_type="text/event-stream", headers=headers)
        text, last = first.text, first
        async for last in pieces:
            text += last.text
        return JSONResponse(answer.completion(text, last))

    return router


async def _answer_request(service: Service, request: ChatRequest) -> AnswerRequest:
    """What the model is asked to write."""
    limits = service.limits
    most = request.max_tokens if request.max_completion_tokens is None else request.max_completion_tokens
    if most is not None and most > limits.answer_tokens:
        message = f"At most {limits.answer_tokens:,} tokens are written for a request; ask for fewer."
        raise ServiceError(422, "answer_too_long", message, param="max_tokens")
    service.refuse_long_text("".join(message.text for message in request.messages), "messages")
    if request.truth:
        question, draw = _only_question(request), request.draw()
        detector = service.loaded.detectors[service.detector_id(request.detector)]
        own = min(detector.trained.setting.max_new_tokens, limits.answer_tokens) if most is None else most
        return await service.prepare(lambda: request_for_question(detector, question, own, draw, request.risk))
    for name in ("detector", "risk"):
        if getattr(request, name) is not None:
            raise invalid_request(f'{name} goes with "truth": true; add it, or leave {name} out.', name)
    turns = [{"role": message.role, "content": message.text} for message in request.messages]
    lm, tokens = service.loaded.lm, most or min(_USUAL_TOKENS, limits.answer_tokens)
    return await service.prepare(lambda: request_for_prompt(lm, _chat_ids(lm, turns), tokens, request.draw()))


def _only_question(request: ChatRequest) -> str:
    """The question of a chat that is scored: a detector was trained on its model under its own prompt only."""
    messages = [message for message in request.messages if message.role != "system" or message.text.strip()]
    if len(messages) != 1 or messages[0].role != "user" or not messages[0].text.strip():
        raise ServiceError(
            422,
            "truth_needs_one_question",
            'With "truth": true, messages is one user message, the question: the '
            "detector was trained under its own prompt only.",
            param="messages",
        )
    return messages[0].text


def _chat_ids(lm: LanguageModel, turns: list[dict[str, str]]) -> tuple[int, ...]:
    """Tokens of a conversation as the model's own chat template writes it, in transformers' sandbox.

    Thinking is switched off where the template has a switch.
    """
    tokenizer = lm.tokenizer
    if not getattr(tokenizer, "chat_template", None):
        message = 'The model has no chat template (a base model has none); ask with "truth": true, which needs none.'
        raise ServiceError(422, "no_chat_template", message, param="messages")
    try:
        template = str(tokenizer.get_chat_template())
        text = render_chat(template, turns, {**tokenizer.special_tokens_map, **SWITCHES})
    except (ValueError, TemplateRefused):  # a template's message may repeat the request's text
        raise ServiceError(
            422,
            "chat_refused",
            "The model's chat template does not take this conversation; most want user and "
            "assistant in turn, the user last.",
            param="messages",
        ) from None
    ids = tuple(int(token) for token in tokenizer(text, add_special_tokens=False)["input_ids"])
    first = lm.needs_bos
    return ids if first is None or ids[:1] == (first,) else (first, *ids)


@dataclass
class _ChatAnswer:
    """The response to one request, whole or as events."""

    service: Service
    request: ChatRequest
    wanted: AnswerRequest

    def __post_init__(self) -> None:
        name = f"chatcmpl-{secrets.token_hex(12)}"
        self.head = {"id": name, "created": int(time.time()), "model": self.service.model}

    def completion(self, text: str, last: Piece) -> dict[str, Any]:
        """The whole answer."""
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": last.reason, **self._truth(last)}
        return {**self.head, "object": "chat.completion", "choices": [choice], "usage": self._usage(last)}

    async def events(self, first: Piece, rest: AsyncIterator[Piece]) -> AsyncIterator[str]:
        """Server-sent events; an error after the first piece comes as the last event."""
        yield self._event({"role": "assistant", "content": ""})
        try:
            last = first
            if first.text:
                yield self._event({"content": first.text})
            async for last in rest:
                if last.text:
                    yield self._event({"content": last.text})
            yield self._event({}, finish_reason=last.reason, **self._truth(last))
            if self.request.stream_options is not None and self.request.stream_options.include_usage:
                yield _line({**self.head, "object": _CHUNK, "choices": [], "usage": self._usage(last)})
        except Exception as error:
            if isinstance(error, UserError):
                error = invalid_request(str(error))
            elif not isinstance(error, ServiceError):
                self.service.log.fault(error, "stream")
                error = internal_error()
            yield _line(error.body())
        yield "data: [DONE]\n\n"

    def _event(self, delta: dict[str, Any], **others: Any) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": None, **others}
        return _line({**self.head, "object": _CHUNK, "choices": [choice]})

    def _truth(self, last: Piece) -> dict[str, Any]:
        """The score, with the detector that it is from; nothing where none was asked for."""
        if self.wanted.detector is None or last.score is None:
            return {}
        name = self.service.detector_id(self.request.detector)
        trained = self.wanted.detector.trained
        threshold = trained.threshold(self.request.risk)
        risk = None if threshold is None else threshold.risk
        return {"truth": {**score_record(last.score), "detector": name, "sha256": trained.sha256, "risk": risk}}

    def _usage(self, last: Piece) -> dict[str, int]:
        prompt, new = len(self.wanted.ids), last.new_tokens
        return {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}


_CHUNK = "chat.completion.chunk"


def _line(record: dict[str, Any]) -> str:
    return f"data: {json.dumps(record)}\n\n"
