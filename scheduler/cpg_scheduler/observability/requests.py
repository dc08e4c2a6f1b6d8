"""What goes over the wire: requests by the names of Kubernetes' own client, and what the watches have brought.

Requests are counted in a table and become metrics when somebody looks, since every bind comes by here.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from cpg_client.observer import RequestObserver
from cpg_client.reflector import ReflectorCounts

BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
"""Seconds, as Kubernetes' own client has them."""
BOUNDS = (*map(str, BUCKETS), "+Inf")
NO_ANSWER = "<error>"
REFLECTED = {
    "lists": "Lists that were read from the beginning: one at the start, and one whenever a watch was lost.",
    "watches": "Watches that the API server has accepted; a healthy one is renewed about every minute.",
    "events": "Changes that watches have told of.",
    "failures": "Lists and watches that failed, and were tried again.",
}


class RequestMetrics(RequestObserver, Collector):
    """Counts the requests of a connection; ``counts`` tells what each reflector has seen, by what it reflects."""

    def __init__(self, counts: Callable[[], Mapping[str, ReflectorCounts]]) -> None:
        """Count from zero."""
        self._counts = counts
        self._answers = Counter[tuple[str, int]]()
        self._repeats = Counter[tuple[str, int]]()
        self._lasted: dict[str, list[int]] = {}
        self._seconds = Counter[str]()

    def on_response(self, method: str, status: int, seconds: float) -> None:
        """Count an answer."""
        self._answers[method, status] += 1
        lasted = self._lasted.get(method)
        if lasted is None:
            lasted = self._lasted[method] = [0] * len(BOUNDS)
        lasted[bisect_left(BUCKETS, seconds)] += 1
        self._seconds[method] += seconds  # type: ignore[assignment] # a counter of floats counts as well

    def on_retry(self, method: str, status: int) -> None:
        """Count a request that is sent again."""
        self._repeats[method, status] += 1

    def collect(self) -> Iterator[Metric]:
        """Yield what has been counted."""
        requests, retries, durations = _families()
        for (method, status), number in self._answers.items():
            requests.add_metric((_code(status), method), number)
        for (method, status), number in self._repeats.items():
            retries.add_metric((_code(status), method), number)
        for method, lasted in self._lasted.items():
            upto = [(bound, float(sum(lasted[: place + 1]))) for place, bound in enumerate(BOUNDS)]
            durations.add_metric((method,), upto, self._seconds[method])
        reflected = _reflected()
        for resource, counts in self._counts().items():
            for name, family in reflected.items():
                family.add_metric((resource,), getattr(counts, name))
        yield from (requests, retries, durations, *reflected.values())

    def describe(self) -> Iterator[Metric]:
        """Yield what there is to count, without counting."""
        yield from (*_families(), *_reflected().values())


def _code(status: int) -> str:
    return str(status) if status else NO_ANSWER


def _families() -> tuple[CounterMetricFamily, CounterMetricFamily, HistogramMetricFamily]:
    """Return the families of requests, still empty."""
    requests = (
        f"Requests to the API server, by method and the status of the answer; `{NO_ANSWER}` where there was no such."
    )
    retries = "Requests that were sent again because the API server asked for it or was not there, by its answer."
    durations = "Time from asking, the wait for a free socket included, to the head of the answer, by method."
    return (
        CounterMetricFamily("rest_client_requests", requests, labels=("code", "method")),
        CounterMetricFamily("rest_client_request_retries", retries, labels=("code", "verb")),
        HistogramMetricFamily("rest_client_request_duration_seconds", durations, labels=("verb",)),
    )


def _reflected() -> dict[str, CounterMetricFamily]:
    """Return the families of what is reflected, still empty, by what is counted."""
    return {
        name: CounterMetricFamily(f"cpg_scheduler_watch_{name}", text, labels=("resource",))
        for name, text in REFLECTED.items()
    }
