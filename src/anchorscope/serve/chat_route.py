"""`/v1/chat/completions`: the model answers, whole or in pieces, and with `truth` the answer is scored as well."""

import json
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, StreamingResponse

from anchorscope.detectors.asking import Wish, Written
from anchorscope.errors import UserError
from anchorscope.serve.chat_prompt import chat_ids
from anchorscope.serve.errors import ServiceError, failed
from anchorscope.serve.openai_form import ChatCompletion, ChatRequest, chunk, usage
from anchorscope.serve.score_form import score_record
from anchorscope.serve.score_route import ASKED
from anchorscope.serve.service import Service

_STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}}, "description": "Whole, or with `stream` in pieces."}
}


def chat_router(service: Service) -> APIRouter:
    """The route that generates."""
    router = APIRouter()

    @router.post(
        "/v1/chat/completions",
        tags=["chat"],
        summary="An answer, and with `truth` how probable it is",
        responses={**ASKED, **_STREAMED},
        response_model=ChatCompletion,
    )
    async def chat(wanted: ChatRequest) -> Any:
        service.refuse_other_model(wanted.model)
        detector = _detector(service, wanted)
        wish = await _wish(service, wanted)
        for one in wanted.messages:
            service.log.said(one.role, one.text)
        pieces = service.ask(wish, detector)
        first = await anext(pieces)  # what is wrong with the request shows here, while there is a status to tell it
        head = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": service.model}
        if wanted.stream:
            wants_usage = wanted.stream_options is not None and wanted.stream_options.include_usage
            lines = _lines(service, head, first, pieces, detector, wanted.risk, wants_usage)
            return StreamingResponse(lines, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        text, last = first.text, first
        async for last in pieces:
            text += last.text
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": last.reason}
        if detector is not None:
            choice["truth"] = _truth(service, detector, wanted.risk, last)
        tokens = usage(last.prompt_tokens, last.new_tokens)
        return JSONResponse({**head, "object": "chat.completion", "choices": [choice], "usage": tokens})

    return router


def _detector(service: Service, wanted: ChatRequest) -> str | None:
    """Who scores the answer; None where nobody is asked to."""
    if wanted.truth:
        found = service.detector_of(wanted.detector)
        service.trained[found].threshold(wanted.risk)
        return found
    for name in ("detector", "risk"):
        if getattr(wanted, name) is not None:
            raise ServiceError(
                422, "invalid_request", f'{name} goes with "truth": true; add it, or leave {name} out.', param=name
            )
    return None


async def _wish(service: Service, wanted: ChatRequest) -> Wish:
    """The request as the engine takes it."""
    limits, longest = service.limits, wanted.longest
    if longest is not None and longest > limits.answer_tokens:
        raise ServiceError(
            422,
            "answer_too_long",
            f"At most {limits.answer_tokens:,} tokens are written for a request; ask for fewer.",
            param="max_tokens",
        )
    if sum(len(one.text) for one in wanted.messages) > limits.item_characters:
        raise service.too_long("messages")
    drawn: dict[str, Any] = {
        "max_new_tokens": longest,
        "temperature": wanted.temperature or 0.0,
        "seed": wanted.wanted_seed,
        "top_p": 1.0 if wanted.top_p is None else wanted.top_p,
        "stop": wanted.stops,
    }
    if wanted.truth:
        if longest is None:
            own = service.trained[service.detector_of(wanted.detector)].setting.max_new_tokens
            drawn["max_new_tokens"] = min(own, limits.answer_tokens)
        return Wish(_question(wanted), risk=wanted.risk, **drawn)
    turns = [{"role": one.role, "content": one.text} for one in wanted.messages]
    ids = await service.render(lambda: chat_ids(service.lm, turns))
    if longest is None:
        drawn["max_new_tokens"] = min(256, limits.answer_tokens)
    return Wish(None, ids, **drawn)


def _question(wanted: ChatRequest) -> str:
    """The one question of a chat that is scored: the detector knows its model under its own prompt only."""
    said = [one for one in wanted.messages if one.role != "system" or one.text.strip()]
    if len(said) != 1 or said[0].role != "user" or not said[0].text.strip():
        raise ServiceError(
            422,
            "truth_needs_one_question",
            'With "truth": true, messages is one user message, the question: the '
            "detector knows its model under the detector's own prompt only.",
            param="messages",
        )
    return said[0].text


def _truth(service: Service, detector: str, risk: float | None, last: Written) -> dict[str, Any]:
    """The score, with the detector that it is from."""
    trained = service.trained[detector]
    threshold = trained.threshold(risk)
    record = {} if last.score is None else score_record(last.score)
    told = None if threshold is None else threshold.risk
    return {**record, "detector": detector, "sha256": trained.sha256, "risk": told}


async def _lines(
    service: Service,
    head: dict[str, Any],
    first: Written,
    rest: AsyncIterator[Written],
    detector: str | None,
    risk: float | None,
    wants_usage: bool,
) -> AsyncIterator[str]:
    """Server-sent events; an error after the first piece comes as the last event."""
    yield _event(chunk(head, {"role": "assistant", "content": ""}, None))
    try:
        last = first
        if first.text:
            yield _event(chunk(head, {"content": first.text}, None))
        async for last in rest:
            if last.text:
                yield _event(chunk(head, {"content": last.text}, None))
        truth = {} if detector is None else {"truth": _truth(service, detector, risk, last)}
        yield _event(chunk(head, {}, last.reason, **truth))
        if wants_usage:
            whole = chunk(head, {}, None)
            yield _event({**whole, "choices": [], "usage": usage(last.prompt_tokens, last.new_tokens)})
    except ServiceError as error:
        yield _event(error.body())
    except UserError as error:
        yield _event(ServiceError(422, "invalid_request", str(error)).body())
    except Exception as error:
        service.log.fault(error, "stream")
        yield _event(failed().body())
    yield "data: [DONE]\n\n"


def _event(record: dict[str, Any]) -> str:
    return f"data: {json.dumps(record)}\n\n"
