"""Metrics of claims for devices; what kube-scheduler has too has its name."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram

from cpg_api.core.devices import DeviceResult
from cpg_scheduler.observability.buckets import LONG_SECONDS, SECONDS

READY, FAILED, TIMEOUT, ERROR = RESULTS = ("success", "failed", "timeout", "error")
"""How it ended to make the devices of a batch ready; failed if a driver says so, else error."""


class DeviceMetrics:
    """Metrics of what happens to claims before their pods are bound."""

    def __init__(self, registry: CollectorRegistry, profile: str) -> None:
        """Count from zero."""
        self._profile = profile
        self._claims = Counter(
            "cpg_scheduler_device_claims",
            "Claims for devices that were written before binds, by the result of their batch.",
            ("result",),
            registry=registry,
        )
        for result in RESULTS:
            self._claims.labels(result)
        self._seconds = Histogram(
            "cpg_scheduler_device_prebind_duration_seconds",
            "Time to write the claims of a batch of binds, and until their devices are ready.",
            ("result",),
            buckets=SECONDS,
            registry=registry,
        )
        self._allocations = Counter(
            "scheduler_dra_bindingconditions_allocations",
            "Devices with binding conditions, by the result of waiting for these.",
            ("profile", "driver", "status"),
            registry=registry,
        )
        self._waits = Histogram(
            "scheduler_dra_bindingconditions_wait_duration_seconds",
            "Time that a batch of binds has waited for the binding conditions of devices.",
            ("profile", "driver", "status"),
            buckets=LONG_SECONDS,
            registry=registry,
        )

    def ended(self, result: str, *, claims: int, devices: Iterable[DeviceResult], seconds: float) -> None:
        """Count the claims of a batch, and those of their devices that have binding conditions."""
        self._claims.labels(result).inc(claims)
        self._seconds.labels(result).observe(seconds)
        waited = [device.driver for device in devices if device.binding_conditions]
        for driver in waited:
            self._allocations.labels(self._profile, driver, result).inc()
        for driver in dict.fromkeys(waited):
            self._waits.labels(self._profile, driver, result).observe(seconds)
