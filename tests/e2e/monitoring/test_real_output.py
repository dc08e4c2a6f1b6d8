"""Alerts and dashboard, evaluated on the metrics of running processes."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cpg_lab import devices
from cpg_lab.clusters import Cluster
from cpg_lab.deployments import Deployments
from cpg_lab.nodes import NodePool
from cpg_lab.promql import Promcheck
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer
    from tests.e2e.monitoring.conftest import Rules

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "kube-cpg"
SPACE = "kube-cpg"
Plain = dict[str, Any]
Pages = dict[str, str]

NODES = "1 block x 2 racks x 1 node, cpu=5"
TARGET = {"job", "namespace", "pod", "service", "endpoint", "container", "instance"}
"""The labels that the Prometheus Operator adds to the targets of a ServiceMonitor."""

TIMEOUT_SECONDS = 30.0
OTHERS: dict[str, Plain] = {
    "without leader election": {
        "scheduler": {"replicas": 1, "schedulerName": "unelected", "settings": {"leaderElect": False}},
        "operator": {"settings": {"leaderElect": False}},
    },
    "limited to its namespace": {"namespaces": ["limited"], "scheduler": {"schedulerName": "limited"}},
}
"""Other valid installations, beside the default one."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run a cluster with two racks of one node each."""
    with Cluster(ClusterSpec(components=("kwok",), nodes=(NodePool.parse(NODES),))) as running:
        yield running


@pytest.fixture(scope="module")
def usual(cluster: Cluster, install: "Installer", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployments]:
    """Run the processes of a default installation."""
    release = install(cluster, {})
    with Deployments(cluster.access, release.deployments, folder=tmp_path_factory.mktemp("usual")) as running:
        yield running


@pytest.fixture(scope="module")
def idle(usual: Deployments) -> Pages:
    """Return the metrics of a new installation without activity."""
    await_leaders(usual)
    return pages(usual)


@pytest.fixture(params=OTHERS)
def other(
    request: pytest.FixtureRequest, cluster: Cluster, install: "Installer", tmp_path: Path, usual: Deployments
) -> Pages:
    """Return the metrics of another installation beside the default one, which has installed the kinds."""
    assert usual.pods
    release = install(cluster, OTHERS[request.param], namespace=request.param.partition(" ")[0])
    with Deployments(cluster.access, release.deployments, folder=tmp_path) as running:
        await_leaders(running)
        return pages(running)


@pytest.fixture(scope="module")
def busy(cluster: Cluster, usual: Deployments, idle: Pages) -> Pages:
    """Return the metrics after trees were placed and preempted, while others wait for room, a group or a member."""
    assert idle
    cluster.kubectl("create", "priorityclass", "high", "--value=100")
    shared = devices.resource_slice("network", devices.gpus(1))
    create(cluster, devices.device_class(), shared, devices.claim("shared"))
    create(cluster, *gang("low", 4, 4, cpu="2", **devices.pod_claims("shared")))
    wait_for(usual, r'cpg_scheduler_binds_total\{result="success"\} 4\.0')
    create(
        cluster,
        *gang("high", 2, 2, cpu="2", key="topology.cpg.dev/rack", priorityClassName="high"),
        *gang("big", 2, 2, cpu="9"),
        *gang("half", 2, 1, cpu="100m", nodeName="node-1-1-1"),
        member("orphan", "missing"),
        *gang("short", 2, 1, cpu="100m"),
        *gang("torn", 3, 1, cpu="100m", key="topology.cpg.dev/rack"),
        *(member(f"torn-on-{rack}", "torn", nodeName=f"node-1-{rack}-1") for rack in (1, 2)),
    )
    for pattern in (
        r'cpg_scheduler_binds_total\{result="success"\} 6\.0',
        r'cpg_scheduler_oldest_waiting_seconds\{reason="held"\} [1-9]',
        r'cpg_scheduler_oldest_waiting_seconds\{reason="Impossible"\} [1-9]',
        r'cpg_scheduler_oldest_waiting_seconds\{reason="Contradiction"\} [1-9]',
        r'cpg_scheduler_oldest_waiting_seconds\{reason="Inadmissible"\} [1-9]',
        r"cpg_operator_partial_seconds [1-9]",
    ):
        wait_for(usual, pattern)
    return pages(usual)


def member(name: str, group: str, *, cpu: str = "100m", **spec: object) -> Plain:
    """Return a pod of a gang."""
    container = {"name": "c", "image": "c", "resources": {"requests": {"cpu": cpu}}}
    usual = {"schedulerName": "cpg-scheduler", "terminationGracePeriodSeconds": 0, "containers": [container]}
    labels = {"scheduling.cpg.dev/pod-group": group}
    meta = {"name": name, "namespace": "default", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**usual, **spec}}


def gang(name: str, minimum: int, pods: int, *, cpu: str, key: str = "", **spec: object) -> list[Plain]:
    """Return a gang, optionally in one domain, with its pods."""
    constraints = {"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}
    priority = {name: value for name, value in spec.items() if name == "priorityClassName"}
    group = {
        "apiVersion": "scheduling.cpg.dev/v1alpha3",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}, **priority, **constraints},
    }
    return [group, *(member(f"{name}-{index}", name, cpu=cpu, **spec) for index in range(pods))]


def create(cluster: Cluster, *items: Plain) -> None:
    """Create objects."""
    cluster.kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def pages(running: Deployments) -> Pages:
    """Return the metrics of every pod by its name."""
    told = {pod.name: pod.get("/metrics") for pods in running.pods.values() for pod in pods}
    assert {status for status, _ in told.values()} == {200}
    return {name: page for name, (_, page) in told.items()}


def leader_page(told: Pages) -> str:
    """Return the metrics of the scheduler that leads."""
    (page,) = [page for page in told.values() if "cpg_scheduler_build_info" in page]
    return page


def value_of(page: str, name: str, **labels: str) -> float:
    """Return the value of a series with these labels; 0 where there is none."""
    samples = (sample for family in text_string_to_metric_families(page) for sample in family.samples)
    return next((one.value for one in samples if one.name == name and labels.items() <= one.labels.items()), 0.0)


def await_leaders(running: Deployments) -> None:
    """Wait until both processes have a leader; a ready replica can be a standby."""
    for part in ("scheduler", "operator"):
        wait_for(running, rf"cpg_{part}_build_info")


def wait_for(running: Deployments, pattern: str) -> None:
    """Wait until the metrics of a pod match a pattern."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not any(re.search(f"^{pattern}", page, re.MULTILINE) for page in pages(running).values()):
        assert time.monotonic() < deadline, f"no metrics match {pattern}"
        time.sleep(0.2)


def held(told: Pages, *, grows: str = "nothing") -> dict[str, str]:
    """Return metrics as series that are constant for two hours, except for ages that grow."""
    found = {}
    for pod, page in told.items():
        target = dict.fromkeys(TARGET, pod) | {"namespace": SPACE, "job": pod.rpartition("-")[0]}
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                labels = ", ".join(f"{key}={json.dumps(value)}" for key, value in (target | sample.labels).items())
                step = 30 if re.fullmatch(grows, sample.name) else 0
                found[f"{sample.name}{{{labels}}}"] = f"{sample.value}+{step}x240".replace("inf", "Inf")
    return found


def test_a_healthy_installation_fires_no_alert(promcheck: Promcheck, alerts: "Rules", idle: Pages) -> None:
    """The default installation is idle for two hours."""
    assert promcheck.evaluate({"idle": held(idle)}, rules=alerts()).fired == {"idle": []}


def test_other_installations_fire_no_alert(promcheck: Promcheck, alerts: "Rules", other: Pages) -> None:
    """This holds without leader election and with limited namespaces."""
    assert promcheck.evaluate({"other": held(other)}, rules=alerts()).fired == {"other": []}


def test_waiting_too_long_fires_the_alerts_about_it(promcheck: Promcheck, alerts: "Rules", busy: Pages) -> None:
    """If the waiting units keep waiting, exactly their alerts fire."""
    lasting = held(busy, grows=r"cpg_scheduler_oldest_waiting_seconds|cpg_operator_partial_seconds")
    fired = promcheck.evaluate({"lasting": lasting}, rules=alerts()).fired["lasting"]
    assert {one.alert for one in fired} == {"CpgTreesPendingTooLong", "CpgTreesHeldTooLong", "CpgTreePartial"}


def test_a_gang_below_its_minimum_is_gated(busy: Pages) -> None:
    """As kube-scheduler counts it; a missing group makes pods incomplete, and other units wait elsewhere."""
    page = leader_page(busy)
    for queue in ("gated", "incomplete"):
        assert value_of(page, "scheduler_queued_entities", queue=queue, type="podgroup") == 1, queue
        assert value_of(page, "scheduler_pending_pods", queue=queue) == 1, queue
    attempted = ("unschedulable", "backoff", "active")
    assert sum(value_of(page, "scheduler_queued_entities", queue=queue, type="podgroup") for queue in attempted) == 2
    assert sum(value_of(page, "scheduler_pending_pods", queue=queue) for queue in attempted) == 3


def test_a_contradiction_of_running_members_is_not_counted_as_a_mistake(busy: Pages) -> None:
    """Users have bound members of one gang to two racks: that is a finding of an attempt, and no error of ours."""
    page = leader_page(busy)
    assert value_of(page, "cpg_scheduler_tree_findings_total", finding="Contradiction") >= 1
    assert value_of(page, "cpg_scheduler_mistakes_total") == 0
    assert not re.search(r'^scheduler_\w*attempt\w*\{.*result="error"', page, re.MULTILINE)


def test_a_standby_alone_fires_the_alert_for_no_leader(promcheck: Promcheck, alerts: "Rules", busy: Pages) -> None:
    """The metrics of a standby lack those of a leader."""
    left = {pod: page for pod, page in busy.items() if "cpg_scheduler_build_info" not in page}
    assert len(left) == len(busy) - 1
    fired = promcheck.evaluate({"left": held(left)}, rules=alerts()).fired["left"]
    assert {one.alert for one in fired} == {"CpgSchedulerNoLeader"}


def test_every_panel_has_data(promcheck: Promcheck, busy: Pages) -> None:
    """Each expression of the dashboard finds series in the metrics and uses only existing labels."""
    board = json.loads((CHART / "files" / "dashboard.json").read_text("utf-8"))
    drawn = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    expressions = [text.replace("$namespace", SPACE).replace("$__rate_interval", "5m") for text in drawn]
    series = held(busy)
    told = promcheck.evaluate({"busy": series}, expressions=expressions)
    assert [text for text, found in told.found["busy"].items() if not found] == []
    labels: dict[str, set[str]] = {}
    for one in series:
        metric, _, rest = one.partition("{")
        labels.setdefault(metric, set()).update(re.findall(r'(\w+)="', rest))
    read = [
        (one.metric, {*one.labels} - labels.get(one.metric, set())) for all_ in told.selectors.values() for one in all_
    ]
    assert [(metric, missing) for metric, missing in read if missing] == []
    listing = board["templating"]["list"][1]["query"]["query"]
    assert re.fullmatch(r"label_values\((\w+), namespace\)", listing)[1] in labels  # type: ignore[index]


def test_every_metric_is_documented(busy: Pages) -> None:
    """The reference lists exactly the exported metrics."""
    told = {
        found.removesuffix("_total")
        for page in busy.values()
        for found in re.findall(r"^# TYPE (\w+)", page, re.MULTILINE)
    }
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    documented = {name.removesuffix("_total") for name in re.findall(r"^\| `(\w+)`", text, re.MULTILINE)}
    assert told == documented
