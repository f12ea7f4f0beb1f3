"""What is refused: every error in OpenAI's envelope, and nothing of a request's text in errors or logs."""

import http.client
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anchorscope.errors import UserError
from anchorscope.models.language_model import LanguageModel
from anchorscope.serve.guard import Keys, is_loopback, read_keys, refuse_no_keys
from anchorscope.serve.monitoring import ServiceLog
from anchorscope.serve.service import Limits
from running import Running, running

SECRET = "zebra<script>alert(1)</script>"
KEY = "k" * 32
ITEM = {"question": "Who?", "answer": "me"}


def refused(answer: Any, status: int, code: str) -> dict[str, Any]:
    """The envelope, with everything in it and nothing of the request."""
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code
    assert "\n" not in error["message"]
    for told in (answer.text, str(answer.headers)):
        assert "zebra" not in told
        assert "Traceback" not in told
    return error


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"items": []}, "items"),
        ({"items": [{"question": SECRET}]}, "items[0].answer"),
        ({"items": [{"question": "  ", "answer": SECRET}]}, "items[0].question"),
        ({"items": [{**ITEM, SECRET: SECRET}]}, None),
        ({"items": [ITEM], "top_k": 3}, "top_k"),
        ({"items": [ITEM], "risk": 2}, "risk"),
        ({"items": [ITEM], "risk": 0.001}, None),
        ([SECRET], None),
    ],
)
def test_a_body_of_another_form(served: Running, body: Any, param: str | None) -> None:
    error = refused(served.client.post("/v1/score", json=body), 422, "invalid_request")
    assert param in (None, error["param"])


@pytest.mark.parametrize(
    ("content", "kind", "status", "code"),
    [
        (b"{zebra", "application/json", 400, "invalid_json"),
        (b"[" * 100_000, "application/json", 400, "invalid_json"),
        (
            b'{"items": [{"question": "zebra \\ud800", "answer": "a"}]}',
            "application/json",
            422,
            "invalid_request",
        ),
        (b'{"items": [], "risk": NaN}', "application/json", 422, "invalid_request"),
        (
            b'{"items": [], "risk": 1' + b"0" * 5000 + b"}",
            "application/json",
            400,
            "invalid_json",
        ),
        (
            b"question=zebra",
            "application/x-www-form-urlencoded",
            415,
            "unsupported_media_type",
        ),
    ],
)
def test_a_body_that_is_no_json(
    served: Running, content: bytes, kind: str, status: int, code: str
) -> None:
    refused(
        served.client.post(
            "/v1/score", content=content, headers={"content-type": kind}
        ),
        status,
        code,
    )


def test_names_that_are_not_there(served: Running) -> None:
    refused(served.score(("Who?", "me"), model=SECRET), 404, "model_not_found")
    refused(served.score(("Who?", "me"), detector=SECRET), 404, "detector_not_found")
    refused(served.client.get("/v1/zebra"), 404, "not_found")
    refused(served.client.get("/v1/score"), 405, "method_not_allowed")
    assert (
        served.client.get("/v1/models").json()["data"][0]["id"] == served.service.model
    )


def test_a_page_of_another_site_cannot_ask_through_the_browser(served: Running) -> None:
    refused(
        served.client.get("/readyz", headers={"Host": "zebra.example"}),
        403,
        "host_not_allowed",
    )


def test_an_empty_answer_and_texts_beyond_the_context_are_not_guessed(
    served: Running,
) -> None:
    items = [
        {**ITEM, "answer": " "},
        {**ITEM, "question": "x" * 2100},
        {**ITEM, "context": "x" * 2100},
    ]
    told = served.client.post("/v1/score", json={"items": items}).json()["items"]
    assert [(item["truth_probability"], item["verdict"]) for item in told] == [
        (None, "unsure")
    ] * 3
    empty, *long = [item["warnings"][-1] for item in told]
    assert empty == "the answer is empty"
    assert all("the model reads at most" in warning for warning in long)


@pytest.fixture(scope="module")
def strict(
    tiny_llama: LanguageModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """A server with a key and small limits, which may log texts."""
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text(f"# ours\n\n{'o' * 20}\n{KEY}\n")
    limits = Limits(item_tokens=300, body_bytes=4000, read_seconds=0.3, requests=64)
    log = ServiceLog(keys.with_name("log.txt"), with_text=True)
    with running(tiny_llama, limits, log, keys=read_keys(keys)) as service:
        service.client.headers["Authorization"] = f"Bearer {KEY}"
        yield service


@pytest.mark.parametrize(
    "given",
    [None, "Bearer " + "k" * 31, f"Basic {KEY}", KEY, "Bearer ", "Bearer zebra"],
)
def test_a_wrong_key(strict: Running, given: str | None) -> None:
    headers = {} if given is None else {"Authorization": given}
    for path in ("/v1/models", "/metrics", "/v1/zebra"):
        with socket.create_connection(
            ("127.0.0.1", int(strict.address.rpartition(":")[2]))
        ) as line:
            asked = http.client.HTTPConnection("127.0.0.1")
            asked.sock = line
            asked.request("GET", path, headers=headers)
            answer = asked.getresponse()
            assert (answer.status, answer.getheader("WWW-Authenticate")) == (
                401,
                "Bearer",
            )
            assert json.loads(answer.read())["error"]["code"] == "invalid_api_key"


def test_health_needs_no_key_and_the_rest_takes_the_right_one(strict: Running) -> None:
    assert strict.client.get("/healthz", headers={"Authorization": ""}).json() == {
        "status": "ok"
    }
    assert strict.score(("Who?", "me")).status_code == 200


def test_limits(strict: Running) -> None:
    refused(strict.score(("Who?", "zebra " * 200)), 413, "item_too_long")
    refused(strict.score(("Who?", "zebra " * 1000)), 413, "body_too_large")

    def chunks() -> Iterator[bytes]:
        for _ in range(100):
            yield b"zebra" * 100

    answer = strict.client.post(
        "/v1/score", content=chunks(), headers={"content-type": "application/json"}
    )
    refused(answer, 413, "body_too_large")


def test_slow_clients_are_not_waited_for(strict: Running) -> None:
    port = int(strict.address.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as silent:
        assert silent.recv(1) == b""  # not even a head
    head = (
        f"POST /v1/score HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
        slow.sendall(head.encode())
        told = "".join(iter(lambda: slow.recv(10_000).decode(), ""))
    assert told.startswith("HTTP/1.1 408 ")
    assert "request_timeout" in told


def test_no_text_in_the_log_unless_asked_for(
    served: Running, strict: Running, log_file: Path
) -> None:
    for one in (served, strict):
        one.score((SECRET, "zebra\nfake line"), model=None)
        one.client.get(f"/{SECRET}")
        one.client.get("/x", headers={"User-Agent": SECRET})
        one.client.post("/v1/score", content=SECRET)
    lines = log_file.read_text().splitlines()
    assert any("POST /v1/score 200 " in line for line in lines)
    assert not any("zebra" in line for line in lines)
    assert strict.service.log.path is not None
    told = strict.service.log.path.read_text()
    assert "zebra" in told
    assert not any(line.startswith("fake line") for line in told.splitlines())


def test_a_log_that_cannot_be_written_stops_nothing(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = ServiceLog(Path("/dev/full"))
    monkeypatch.setattr(served.service, "log", full)
    for _ in range(2):
        assert served.score(("Who?", "me")).status_code == 200
    full.close()
    with pytest.raises(UserError, match="--log-file"):
        ServiceLog(Path("/no/such/place/log.txt"))


def test_who_may_listen(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    for text in ("short\n", "# none\n", "a key with blanks in it\n"):
        keys.write_text(text)
        with pytest.raises(UserError, match="make one with"):
            read_keys(keys)
    keys.write_bytes(b"\xff" * 20)
    with pytest.raises(UserError, match="not ASCII"):
        read_keys(keys)
    with pytest.raises(UserError, match="cannot be read"):
        read_keys(tmp_path / "none")
    for host in ("0.0.0.0", "::", "192.168.0.1", "example.org"):
        assert not is_loopback(host)
        with pytest.raises(UserError, match="there are no keys"):
            refuse_no_keys(host, Keys())
        refuse_no_keys(host, Keys((KEY,)))
    for host in ("127.0.0.1", "localhost", "::1", "127.0.0.7"):
        refuse_no_keys(host, Keys())


def test_who_has_no_key_takes_nobodys_place(strict: Running) -> None:
    port, slow = int(strict.address.rpartition(":")[2]), []
    try:
        for _ in range(strict.service.limits.requests):
            slow.append(socket.create_connection(("127.0.0.1", port)))
            slow[-1].sendall(
                b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
            )
        for _ in range(3):
            assert strict.client.get("/v1/models").status_code == 200
        until = time.monotonic() + 5
        # these three may not have been counted off yet
        while strict.service.requests and time.monotonic() < until:
            time.sleep(0.01)
        assert strict.service.requests == 0
    finally:
        for line in slow:
            line.close()
