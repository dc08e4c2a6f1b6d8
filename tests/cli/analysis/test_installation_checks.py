"""The checks of ``doctor`` on the installation."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.cluster_caches import facts_of

from cpg_cli.analysis.findings import CheckFinding
from cpg_cli.analysis.installation_checks import (
    collision_checks,
    kind_checks,
    process_checks,
    right_checks,
    server_checks,
    webhook_checks,
)
from cpg_cli.cluster.facts import OUR_PLURALS, RIGHTS, ClusterFacts, OtherKind
from cpg_cli.cluster.release import (
    ReplicaCondition,
    ReplicaContainer,
    ReplicaList,
    ReplicaMeta,
    ReplicaPod,
    ReplicaSpec,
    ReplicaStatus,
)
from cpg_client.leader_election import LeaseRecord

CRDS = [
    yaml.safe_load(path.read_text("utf-8")) for path in (Path(__file__).parents[3] / "manifests" / "crds").iterdir()
]


def found(findings: Iterator[CheckFinding]) -> list[tuple[str, str, str]]:
    """Return level, check and text of findings."""
    return [(one.level.value, one.check, one.text) for one in findings]


def served() -> ClusterFacts:
    """Return the facts of a cluster with our kinds."""
    facts = facts_of()
    facts.served = {"crd": set(OUR_PLURALS)}
    schemas = {crd["spec"]["names"]["kind"]: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for crd in CRDS}
    facts.schemas = {f"dev.cpg.scheduling.v1alpha3.{kind}": schema for kind, schema in schemas.items()}
    return facts


def replica(
    name: str = "one", *, ready: bool = True, image: str = "here/kube-cpg:1.0", version: str = ""
) -> ReplicaPod:
    """Return a pod of the release."""
    conditions = (ReplicaCondition("Ready", "True" if ready else "False"),)
    return ReplicaPod(
        ReplicaMeta(name, "kube-cpg", {"app.kubernetes.io/version": version} if version else {}),
        ReplicaSpec("kube-cpg-scheduler", "node-1", (ReplicaContainer(image),)),
        ReplicaStatus("Running", conditions),
    )


def lease(holder: str, renewed: str = "1970-01-01T00:00:00Z") -> LeaseRecord:
    """Return a lease of 15 seconds."""
    return LeaseRecord(holder_identity=holder, lease_duration_seconds=15, renew_time=renewed)


def test_the_kinds_of_this_version_are_fine() -> None:
    """All are served, with all fields of their structs."""
    assert found(kind_checks(served())) == [
        ("ok", "kinds", "scheduling.cpg.dev/v1alpha3 is served"),
        ("ok", "schema", "all fields of this version are there"),
    ]


def test_a_field_that_a_kind_lacks_is_named_without_those_below_it() -> None:
    """So an older installation of the kinds shows."""
    facts = served()
    schema = facts.schemas["dev.cpg.scheduling.v1alpha3.PodGroup"]
    del schema["properties"]["spec"]["properties"]["schedulingConstraints"]
    (_, drifted) = found(kind_checks(facts))
    assert drifted == ("fail", "schema", "PodGroup lacks fields of this version: spec.schedulingConstraints")


def test_kinds_that_are_missing_or_stored_in_another_version() -> None:
    """Native groups alone are fine."""
    facts = facts_of()
    assert [level for level, _, _ in found(kind_checks(facts))] == ["fail"]
    facts.served = {"native": {"podgroups"}}
    assert [level for level, _, _ in found(kind_checks(facts))] == ["ok"]
    facts.custom_resources = {"podgroups": {"status": {"storedVersions": ["v1alpha2", "v1alpha3"]}}}
    assert found(kind_checks(facts))[1][:2] == ("warn", "stored versions")


@pytest.mark.parametrize(("version", "level"), [("v1.37.1", "ok"), ("v1.29.4", "warn"), ("v2.0.0", "ok")])
def test_an_old_api_server_is_a_warning(version: str, level: str) -> None:
    """Older than the oldest version that is tested."""
    facts = facts_of()
    facts.server_version = version
    assert [one for one, _, _ in found(server_checks(facts))] == [level]


def test_a_process_without_pods_fails() -> None:
    """So does one without a leader, with an old lease, or with pods that are not ready."""
    facts = facts_of()
    facts.processes = {"scheduler": []}
    assert found(process_checks(facts, "1.0")) == [("fail", "scheduler", "no pods found")]
    facts.processes = {"scheduler": [ReplicaList((replica(ready=False),), lease("other-7-abc"))]}
    assert [level for level, _, _ in found(process_checks(facts, "1.0"))] == ["fail", "fail", "ok"]
    facts.now = 60.0
    facts.processes = {"scheduler": [ReplicaList((replica(), replica("two", ready=False)), lease("one-7-abc"))]}
    assert found(process_checks(facts, "1.0"))[:2] == [
        ("warn", "scheduler", "1 of 2 pods of kube-cpg/kube-cpg-scheduler ready: kube-cpg/two"),
        ("fail", "scheduler leader", "kube-cpg/one has not renewed its lease for 60 s"),
    ]


def test_the_leader_is_a_pod_or_its_node_or_the_only_one() -> None:
    """With a host network the lease names the node; without leader election there is no lease."""
    pods = (replica("one"), replica("two"))
    assert ReplicaList(pods, lease("two-7-abc")).leader == pods[1]
    assert ReplicaList(pods, lease("node-1-7-abc")).leader == pods[0]
    assert ReplicaList(pods[:1]).leader == pods[0]
    assert ReplicaList(pods).leader is None
    assert ReplicaList(pods, lease("")).leader is None
    long = replica("x" * 70)
    assert ReplicaList((long,), lease("x" * 63 + "-7-abc")).leader == long


@pytest.mark.parametrize(
    ("pod", "level"),
    [
        (replica(), "ok"),
        (replica(image="here:5000/kube-cpg@sha256:abc"), "ok"),
        (replica(image="here/kube-cpg:0.9"), "warn"),
        (replica(version="0.9"), "warn"),
    ],
    ids=["same", "digest", "tag", "label"],
)
def test_another_version_of_a_process_is_a_warning(pod: ReplicaPod, level: str) -> None:
    """By its label, or the tag of its image; a digest says nothing."""
    facts = facts_of()
    facts.processes = {"scheduler": [ReplicaList((pod,))]}
    assert [one for one, check, _ in found(process_checks(facts, "1.0")) if check == "scheduler version"] == [level]


@pytest.mark.parametrize(("not_ready", "level"), [("", "ok"), ("pods: no watch for 90 s", "fail"), (None, "")])
def test_what_the_leader_says_about_its_watches(not_ready: str | None, level: str) -> None:
    """Nothing is said where it was not asked."""
    facts = facts_of()
    facts.not_ready = not_ready
    assert [one for one, _, _ in found(process_checks(facts, "1.0"))] == ([level] if level else [])


def test_kinds_of_others_with_our_names_are_warnings() -> None:
    """By their plural or a short name."""
    facts = facts_of()
    assert [level for level, _, _ in found(collision_checks(facts))] == ["ok"]
    facts.other_kinds = [
        OtherKind("podgroups", "PodGroup", ("pg", "podgroup-v1beta1"), "scheduling.volcano.sh"),
        OtherKind("podgroups/status", "PodGroup", (), "scheduling.volcano.sh"),
        OtherKind("pages", "Page", ("pg",), "example.com"),
    ]
    assert [text for _, _, text in found(collision_checks(facts))] == [
        "other kinds have the names of ours: podgroups.scheduling.volcano.sh",
        "`pg` is also podgroups.scheduling.volcano.sh",
        "`pg` is also pages.example.com",
    ]


@pytest.mark.parametrize(
    ("hook", "level"),
    [
        ({"clientConfig": {}, "failurePolicy": "Ignore"}, "fail"),
        ({"clientConfig": {"caBundle": "x"}, "failurePolicy": "Fail"}, "warn"),
        ({"clientConfig": {"caBundle": "x"}, "failurePolicy": "Ignore"}, "ok"),
    ],
)
def test_the_webhook_has_a_ca_and_fails_open(hook: dict[str, Any], level: str) -> None:
    """Otherwise it is named."""
    facts = facts_of()
    facts.webhooks = [{"metadata": {"name": "kube-cpg"}, "webhooks": [hook]}]
    assert [one for one, _, _ in found(webhook_checks(facts))] == [level]


def test_a_missing_right_says_what_is_missing_without_it() -> None:
    """The others are not listed."""
    facts = facts_of()
    assert [level for level, _, _ in found(right_checks(facts))] == ["ok"]
    facts.missing_rights = [RIGHTS[-1]]
    assert found(right_checks(facts)) == [
        (
            "warn",
            "your rights",
            "you may not create pods/portforward: `explain` and `queue` do not ask the scheduler itself",
        )
    ]
