"""Scores from a running service (`anchorscope serve`), for programs that have no model of their own here.

Needs httpx, which every library that this is for brings along, and nothing else of ours: no torch.
"""

from typing import Any

from anchorscope.errors import UserError

ADDRESS = "http://127.0.0.1:8642"
"""Where a service listens unless it is told otherwise."""
_WAITS = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds, where a busy service names none
_BUSY = (429, 503, 504)
_LONGEST_WAIT = 30.0


async def ask_score(
    question: str,
    answer: str,
    url: str = ADDRESS,
    key: str | None = None,
    detector: str | None = None,
    timeout: float = 120.0,
) -> dict[str, Any]:
    """What a service says of one answer, with the detector's id and sha256; waits and asks again while it is busy."""
    import anyio
    import httpx

    body = {"items": [{"question": question, "answer": answer}], **({} if detector is None else {"detector": detector})}
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(timeout=timeout) as client:
        for wait in (*_WAITS, None):
            try:
                found = await client.post(f"{url.rstrip('/')}/v1/score", json=body, headers=headers)
            except (httpx.TransportError, httpx.InvalidURL) as error:
                raise UserError(
                    f"The service at {url} cannot be reached ({str(error) or type(error).__name__}); start it with "
                    f"anchorscope serve, or give its address."
                ) from None
            if found.status_code not in _BUSY or wait is None:
                break
            await anyio.sleep(_wait(found.headers.get("Retry-After"), wait))
    if found.status_code != 200:
        raise UserError(f"The service at {url} refuses to score ({found.status_code}): {_message(found)}")
    try:
        told = found.json()
        return {**told["items"][0], "detector": told["detector"], "sha256": told["sha256"]}
    except (ValueError, KeyError, IndexError, TypeError):
        raise UserError(f"What answers at {url} is no service of anchorscope; give the address of one.") from None


def _wait(named: str | None, otherwise: float) -> float:
    return min(float(named), _LONGEST_WAIT) if named is not None and named.isdigit() else otherwise


def _message(found: Any) -> str:
    """The service's own sentence."""
    try:
        return " ".join(str(found.json()["error"]["message"]).split())
    except (ValueError, KeyError, TypeError):
        return str(found.reason_phrase)
