"""Numbers of the service for Prometheus, in a registry of its own; names of routes and verdicts only, no text."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_NAME = "anchorscope"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_TOKENS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """What is counted."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._counter("requests", "Requests by route and status.", ("route", "status"))
        self.refused_connections = self._counter("refused_connections", "Connections beyond those that are taken.")
        self.seconds = self._histogram("request_seconds", "From the first byte to the last.", _SECONDS, ("route",))
        self.queue = self._gauge("queue_tokens", "Tokens that wait or are under way.")
        self.batch_items = self._histogram("batch_items", "Items that were run together.", _ITEMS)
        self.batch_tokens = self._histogram("batch_tokens", "Tokens that were run together.", _TOKENS)
        self.items = self._counter("items", "Items that were scored, by detector.", ("detector",))
        self.verdicts = self._counter("verdicts", "What was said of them.", ("detector", "verdict"))
        self.failed_items = self._counter("failed_items", "Items that could not be scored.")
        self.written = self._counter("generated_tokens", "Tokens that the model wrote.")
        self.memory = self._counter("memory_ran_out", "Batches that did not fit and were halved.")
        self.ready = self._gauge("ready", "1 where the model is loaded and requests are taken.")
        self.lost_lines = self._counter("lost_log_lines", "Log lines that could not be written.")

    def text(self) -> bytes:
        """As Prometheus reads it."""
        return generate_latest(self.registry)

    def _counter(self, name: str, about: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(name, about, labels, namespace=_NAME, registry=self.registry)

    def _gauge(self, name: str, about: str) -> Gauge:
        return Gauge(name, about, namespace=_NAME, registry=self.registry)

    def _histogram(self, name: str, about: str, buckets: tuple[float, ...], labels: tuple[str, ...] = ()) -> Histogram:
        return Histogram(name, about, labels, namespace=_NAME, registry=self.registry, buckets=buckets)
