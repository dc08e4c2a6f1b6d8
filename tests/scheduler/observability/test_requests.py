"""The metrics of requests and reflectors."""

from prometheus_client import CollectorRegistry, generate_latest

from cpg_client.reflector import ReflectorCounts
from cpg_scheduler.observability.requests import RequestMetrics


def lines(metrics: RequestMetrics) -> set[str]:
    """Return the samples of a page."""
    registry = CollectorRegistry()
    registry.register(metrics)
    return {line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")}


def test_requests_are_counted_by_the_names_of_client_go() -> None:
    """By method and status; buckets are cumulative, and a duration that is a bound belongs below it."""
    metrics = RequestMetrics(dict)
    for status, seconds in ((201, 0.001), (201, 0.005), (429, 0.0051), (0, 99.0)):
        metrics.on_response("POST", status, seconds)
    metrics.on_response("GET", 200, 0.5)
    metrics.on_retry("POST", 429)
    name = "rest_client_request_duration_seconds"
    assert {
        'rest_client_requests_total{code="201",method="POST"} 2.0',
        'rest_client_requests_total{code="429",method="POST"} 1.0',
        'rest_client_requests_total{code="<error>",method="POST"} 1.0',
        'rest_client_requests_total{code="200",method="GET"} 1.0',
        'rest_client_request_retries_total{code="429",verb="POST"} 1.0',
        f'{name}_bucket{{le="0.005",verb="POST"}} 2.0',
        f'{name}_bucket{{le="0.025",verb="POST"}} 3.0',
        f'{name}_bucket{{le="60.0",verb="POST"}} 3.0',
        f'{name}_bucket{{le="+Inf",verb="POST"}} 4.0',
        f'{name}_count{{verb="POST"}} 4.0',
        f'{name}_sum{{verb="GET"}} 0.5',
    } < lines(metrics)


def test_the_work_of_reflectors_is_counted_by_resource() -> None:
    """As it is when Prometheus asks."""
    pods = ReflectorCounts(lists=1)
    metrics = RequestMetrics(lambda: {"/api/v1/pods": pods})
    pods.watches, pods.events, pods.failures = 2, 3, 4
    assert lines(metrics) == {
        f'cpg_scheduler_watch_{name}_total{{resource="/api/v1/pods"}} {number}.0'
        for name, number in (("lists", 1), ("watches", 2), ("events", 3), ("failures", 4))
    }
