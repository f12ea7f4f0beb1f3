"""A real server on a tiny model, in a thread of the tests' own process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx

from anchorscope.detectors.bundle import TrainedDetector
from anchorscope.models.language_model import LanguageModel
from anchorscope.serve.guard import Keys
from anchorscope.serve.monitoring import ServiceLog
from anchorscope.serve.processes import address_of, listen
from anchorscope.serve.server import ServiceServer
from anchorscope.serve.service import Limits, Service, by_id
from detector_cases import added, probe, trained_on

CALIBRATION = {"low": 0.5, "high": 0.6, "n": 40, "said": 0.55, "true": 0.61}


def made_detectors(lm: LanguageModel) -> list[TrainedDetector]:
    """A probe, and a detector that reads the state before the answer as well."""
    card = replace(trained_on(lm).card, calibration=(CALIBRATION,))
    cut = added((probe(), probe(("question-only", "mlp", 2))))
    return [
        trained_on(lm, card=card, sha256="a" * 64),
        trained_on(lm, name="auto", fitted=cut, sha256="b" * 64),
    ]


@contextmanager
def running(
    lm: LanguageModel,
    limits: Limits | None = None,
    log: ServiceLog | None = None,
    keys: Keys | None = None,
) -> Iterator["Running"]:
    service = Service(by_id(made_detectors(lm)), lambda: lm, limits, log)
    bound, ready = listen("127.0.0.1", 0), threading.Event()
    server = ServiceServer(service, keys, drain=5.0, on_ready=ready.set)
    thread = threading.Thread(target=lambda: server.run(sockets=[bound]), daemon=True)
    thread.start()
    assert ready.wait(60), service.thread.error
    with httpx.Client(base_url=address_of(bound), timeout=30) as client:
        try:
            yield Running(service, client, address_of(bound), server)
        finally:
            server.should_exit = True
            thread.join(20)
    assert not thread.is_alive()


class Running:
    def __init__(
        self,
        service: Service,
        client: httpx.Client,
        address: str,
        server: ServiceServer,
    ) -> None:
        self.service, self.client, self.address, self.server = (
            service,
            client,
            address,
            server,
        )

    def score(self, *pairs: tuple[str, str], **others: Any) -> httpx.Response:
        items = [{"question": question, "answer": answer} for question, answer in pairs]
        return self.client.post("/v1/score", json={"items": items, **others})
