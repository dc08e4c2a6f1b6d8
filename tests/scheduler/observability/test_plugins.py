"""Unschedulable pods by the kube-scheduler plugin that rejects them."""

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest

from cpg_api.core.pod import SchedulingGate
from cpg_engine.filters import registry as filters
from cpg_engine.testing.builders import node, pod, pod_group
from cpg_engine.testing.claim_builders import claiming, own_claim
from cpg_engine.testing.device_builders import claim_spec, device_claim, device_class, device_request
from cpg_scheduler.observability.plugins import PLACEMENT, PluginsCollector, plugin_of
from cpg_scheduler.testing.stage import Stage


def counted(stage: Stage) -> dict[str, float]:
    """Return the number of pods by plugin."""
    registry = CollectorRegistry()
    registry.register(PluginsCollector(stage.cache, stage.queue, "mine"))
    found = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    assert all('profile="mine"' in line for line in found)
    return {line.split('plugin="')[1].partition('"')[0]: float(line.split()[-1]) for line in found}


def test_a_pod_counts_for_every_plugin_that_rejects_it() -> None:
    """Single pods and gangs; placed and new pods do not count."""
    stage = Stage(node("n1", cpu=1), node("n2", cpu=9, unschedulable=True), pod("fits", cpu=1), pod("big", cpu=9))
    stage.put(pod_group("pg", gang=2), pod("a", group="pg", cpu=9), pod("b", group="pg", cpu=9))
    stage.run_passes()
    stage.put(pod("new", cpu=1))
    stage.loop._requeuer.take_events(0.0)
    assert counted(stage) == {"NodeResourcesFit": 3.0, "NodeUnschedulable": 3.0}


def test_equivalent_pods_count_though_only_one_was_attempted() -> None:
    """They share its failure."""
    stage = Stage(node("n1", cpu=1), *(pod(f"p{number}", cpu=9) for number in range(7)))
    stage.run_passes()
    assert counted(stage) == {"NodeResourcesFit": 7.0}


def test_pods_count_for_the_devices_that_they_lack() -> None:
    """Whether devices are taken, or a claim or a class is missing."""
    stage = Stage(node("n1"), device_class(), own_claim("full"), claiming("full", made={"gpu": "full-gpu"}))
    asked = device_claim("asked", claim_spec(device_request(device_class_name="none")))
    stage.put(asked, claiming("unknown", "asked"), claiming("missing", "absent"))
    found = claiming("early", made={"gpu": None})
    stage.put(replace(found, status=replace(found.status, resource_claim_statuses=None)))
    stage.run_passes()
    assert counted(stage) == {"DynamicResources": 4.0}


def test_inadmissible_units_count_for_the_gang_or_for_gates() -> None:
    """A gated pod counts for its gates alone."""
    gate = (SchedulingGate(name="wait"),)
    stage = Stage(node("n1"), pod_group("pg", gang=2), pod("a", group="pg"), pod("orphan", group="missing"))
    stage.put(pod("gated", scheduling_gates=gate), pod_group("g", gang=2), pod("c", group="g", scheduling_gates=gate))
    stage.put(pod("d", group="g"))
    stage.run_passes()
    assert counted(stage) == {"GangScheduling": 3.0, "SchedulingGates": 2.0}


def test_domains_without_room_count_for_what_is_short_in_the_closest() -> None:
    """If only the label is missing, for the placement."""
    stage = Stage(node("n1", cpu=1, labels={"rack": "a"}), pod_group("pg", gang=1, key="rack"))
    stage.put(pod("a", group="pg", cpu=9), pod_group("other", gang=1, key="row"), pod("b", group="other", cpu=1))
    stage.run_passes()
    assert counted(stage) == {"NodeResourcesFit": 1.0, PLACEMENT: 1.0}


@pytest.mark.parametrize("static", filters.STATIC)
def test_every_static_filter_has_a_plugin(static: filters.StaticFilter) -> None:
    """None of them counts for the placement."""
    assert plugin_of(static.reason) != PLACEMENT
