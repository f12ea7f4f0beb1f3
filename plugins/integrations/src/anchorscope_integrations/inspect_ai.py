"""A detector as a scorer of inspect_ai: every answer is sent to a running service, and its truth becomes the score.

Task(dataset=..., solver=generate(), scorer=truth(url="http://127.0.0.1:8642"))
inspect score logs/x.eval --scorer anchorscope/truth

Needs inspect_ai, with the httpx that it brings along, and no torch.
"""

import os
from typing import Any

from anchorscope import UserError, first_line

try:
    import anyio
    import httpx
    from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
    from inspect_ai.solver import TaskState
except ImportError as error:
    raise UserError(
        f"inspect_ai cannot be imported ({error}); pip install 'anchorscope-integrations[inspect]'."
    ) from None

ADDRESS = "http://127.0.0.1:8642"
_BUSY = (429, 503, 504)
_WAITS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each further attempt, unless the busy service names its own."""
_LONGEST_WAIT = 30.0
_TIMEOUT = 120.0


def truth(
    url: str = ADDRESS, key: str = "ANCHORSCOPE_KEY", detector: str | None = None
) -> Scorer:
    """The probability that the answer is true, from 0 to 1, by the detector of a running service.

    `key` is the *name* of the environment variable with the service's key, since arguments are logged. `detector` is
    one of the service's, by default the first. An empty answer isn't scored.
    """

    async def score(state: TaskState, target: Target) -> Score:
        answer = first_line(state.output.completion)
        item = await ask_score(
            state.input_text,
            answer,
            url=url,
            key=os.environ.get(key),
            detector=detector,
        )
        metadata = dict(item)
        metadata.pop("id", None)
        warnings = "; ".join(item.get("warnings") or ())
        if item["truth_probability"] is None:
            return Score.unscored(
                answer=answer,
                explanation=warnings or "the answer is empty",
                metadata=metadata,
            )
        return Score(
            value=item["truth_probability"],
            answer=answer,
            explanation=warnings or item["verdict"],
            metadata=metadata,
        )

    return score


# inspect_ai names a scorer after the package of its module; without this, its name would be
# anchorscope_integrations/truth, and older logs name anchorscope/truth.
truth.__module__ = "anchorscope"
truth = scorer(metrics=[mean(), stderr()], name="truth")(truth)


async def ask_score(
    question: str,
    answer: str,
    *,
    url: str = ADDRESS,
    key: str | None = None,
    detector: str | None = None,
) -> dict[str, Any]:
    """A service's score of one answer, with the detector's id and sha256; retries while it is busy."""
    body: dict[str, Any] = {"items": [{"question": question, "answer": answer}]}
    if detector is not None:
        body["detector"] = detector
    headers = {}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    try:
        async with httpx.AsyncClient(timeout=_TIMEOUT, headers=headers) as client:
            response = await _post(client, f"{url.rstrip('/')}/v1/score", body)
    except (httpx.TransportError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        raise UserError(
            f"The service at {url} cannot be reached ({reason}); start it with anchorscope serve, or give its address."
        ) from None
    if response.status_code != 200:
        raise UserError(
            f"The service at {url} refuses to score ({response.status_code}): {_message(response)}"
        )
    try:
        scored = response.json()
        item: dict[str, Any] = dict(scored["items"][0])
        item["detector"] = scored["detector"]
        item["sha256"] = scored["sha256"]
    except (ValueError, KeyError, IndexError, TypeError):
        raise UserError(
            f"What answers at {url} is no service of anchorscope; give the address of one."
        ) from None
    return item


async def _post(
    client: httpx.AsyncClient, address: str, body: dict[str, Any]
) -> httpx.Response:
    """The service's answer; a busy service is asked again."""
    for wait in _WAITS:
        response = await client.post(address, json=body)
        if response.status_code not in _BUSY:
            return response
        named = response.headers.get("Retry-After", "")
        if named.isdigit():
            wait = min(float(named), _LONGEST_WAIT)
        await anyio.sleep(wait)
    return await client.post(address, json=body)


def _message(response: httpx.Response) -> str:
    """The service's own sentence."""
    try:
        return " ".join(str(response.json()["error"]["message"]).split())
    except (ValueError, KeyError, TypeError):
        return response.reason_phrase
