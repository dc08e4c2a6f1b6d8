"""Requests to the API server, by the metric names of client-go, and the work of the reflectors.

Requests are counted in plain tables and become metrics when Prometheus asks, because every bind is counted here.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from cpg_client.observer import RequestObserver
from cpg_client.reflector import ReflectorCounts

BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
"""Seconds, as in client-go."""
BOUNDS = (*map(str, BUCKETS), "+Inf")
NO_RESPONSE = "<error>"
REFLECTOR_COUNTS = {
    "lists": "LIST requests: one at the start, and one whenever a watch cannot be resumed.",
    "watches": "Watches that the API server has accepted; a healthy one is renewed about every minute.",
    "events": "Events that watches have delivered.",
    "failures": "LIST requests and watches that failed; each is retried.",
}


class RequestMetrics(RequestObserver, Collector):
    """Counts the requests of a connection; ``counts`` returns the work of each reflector, by resource path."""

    def __init__(self, counts: Callable[[], Mapping[str, ReflectorCounts]]) -> None:
        """Count from zero."""
        self._counts = counts
        self._responses = Counter[tuple[str, int]]()
        self._retries = Counter[tuple[str, int]]()
        self._buckets_of: dict[str, list[int]] = {}
        self._seconds = Counter[str]()

    def on_response(self, method: str, status: int, seconds: float) -> None:
        """Count a response."""
        self._responses[method, status] += 1
        buckets = self._buckets_of.get(method)
        if buckets is None:
            buckets = self._buckets_of[method] = [0] * len(BOUNDS)
        buckets[bisect_left(BUCKETS, seconds)] += 1
        self._seconds[method] += seconds  # type: ignore[assignment] # a Counter adds floats as well

    def on_retry(self, method: str, status: int) -> None:
        """Count a request that is repeated."""
        self._retries[method, status] += 1

    def collect(self) -> Iterator[Metric]:
        """Yield the counts so far."""
        requests, retries, durations = _families()
        for (method, status), number in self._responses.items():
            requests.add_metric((_code(status), method), number)
        for (method, status), number in self._retries.items():
            retries.add_metric((_code(status), method), number)
        for method, buckets in self._buckets_of.items():
            cumulative = [(bound, float(sum(buckets[: index + 1]))) for index, bound in enumerate(BOUNDS)]
            durations.add_metric((method,), cumulative, self._seconds[method])
        reflectors = _reflector_families()
        for resource, counts in self._counts().items():
            for name, family in reflectors.items():
                family.add_metric((resource,), getattr(counts, name))
        yield from (requests, retries, durations, *reflectors.values())

    def describe(self) -> Iterator[Metric]:
        """Yield the families, without counting."""
        yield from (*_families(), *_reflector_families().values())


def _code(status: int) -> str:
    return str(status) if status else NO_RESPONSE


def _families() -> tuple[CounterMetricFamily, CounterMetricFamily, HistogramMetricFamily]:
    """Return the metrics of requests, still empty."""
    requests = f"Requests to the API server, by method and status code; `{NO_RESPONSE}` without a response."
    retries = "Requests that were repeated, because the API server asked for it or was not reached, by its response."
    durations = "Time from the request, including the wait for a free connection, to the response headers, by method."
    return (
        CounterMetricFamily("rest_client_requests", requests, labels=("code", "method")),
        CounterMetricFamily("rest_client_request_retries", retries, labels=("code", "verb")),
        HistogramMetricFamily("rest_client_request_duration_seconds", durations, labels=("verb",)),
    )


def _reflector_families() -> dict[str, CounterMetricFamily]:
    """Return the metrics of the reflectors, still empty, by what they count."""
    return {
        name: CounterMetricFamily(f"cpg_scheduler_watch_{name}", text, labels=("resource",))
        for name, text in REFLECTOR_COUNTS.items()
    }
