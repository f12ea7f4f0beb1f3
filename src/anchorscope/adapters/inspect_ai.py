"""A detector as a scorer of inspect_ai: every answer is sent to a running service, and its truth becomes the score.

Task(dataset=..., solver=generate(), scorer=truth(url="http://127.0.0.1:8642"))
inspect score logs/x.eval --scorer anchorscope/truth

Needs inspect_ai, with the httpx that it brings along, and no torch.
"""

import os
from typing import Any

from anchorscope.datasets.formats import first_line
from anchorscope.errors import UserError

try:
    from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr  # type: ignore[import-not-found, unused-ignore]
    from inspect_ai.solver import TaskState  # type: ignore[import-not-found, unused-ignore]
except ImportError as error:
    raise UserError(
        f"inspect_ai cannot be imported ({error}); pip install inspect_ai."
    ) from None

ADDRESS = "http://127.0.0.1:8642"
_BUSY = (429, 503, 504)
_WAITS = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds, where a busy service names none
_LONGEST_WAIT = 30.0
_TIMEOUT = 120.0


@scorer(metrics=[mean(), stderr()], name="truth")  # type: ignore[untyped-decorator, unused-ignore]
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
            state.input_text, answer, url, os.environ.get(key), detector
        )
        metadata: dict[str, Any] = {
            name: value for name, value in item.items() if name != "id"
        }
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


async def ask_score(
    question: str,
    answer: str,
    url: str = ADDRESS,
    key: str | None = None,
    detector: str | None = None,
) -> dict[str, Any]:
    """A service's score of one answer, with the detector's id and sha256; retries while it is busy."""
    import anyio
    import httpx

    body = {
        "items": [{"question": question, "answer": answer}],
        **({} if detector is None else {"detector": detector}),
    }
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(timeout=_TIMEOUT) as client:
        for wait in (*_WAITS, None):
            try:
                response = await client.post(
                    f"{url.rstrip('/')}/v1/score", json=body, headers=headers
                )
            except (httpx.TransportError, httpx.InvalidURL) as error:
                raise UserError(
                    f"The service at {url} cannot be reached ({str(error) or type(error).__name__}); start it with "
                    f"anchorscope serve, or give its address."
                ) from None
            if response.status_code not in _BUSY or wait is None:
                break
            named = response.headers.get("Retry-After", "")
            await anyio.sleep(
                min(float(named), _LONGEST_WAIT) if named.isdigit() else wait
            )
    if response.status_code != 200:
        raise UserError(
            f"The service at {url} refuses to score ({response.status_code}): {_message(response)}"
        )
    try:
        scored = response.json()
        return {
            **scored["items"][0],
            "detector": scored["detector"],
            "sha256": scored["sha256"],
        }
    except (ValueError, KeyError, IndexError, TypeError):
        raise UserError(
            f"What answers at {url} is no service of anchorscope; give the address of one."
        ) from None


def _message(response: Any) -> str:
    """The service's own sentence."""
    try:
        return " ".join(str(response.json()["error"]["message"]).split())
    except (ValueError, KeyError, TypeError):
        return str(response.reason_phrase)
