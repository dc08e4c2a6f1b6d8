"""Trees as ``kubectl cpg tree`` shows them, by what groups and pods say of themselves."""

import io
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console
from tests.cli.golden_files import assert_golden
from tests.cli.situations_reader import objects_of

from cpg_api.core.pod import Pod, PodStatus
from cpg_api.meta import Condition, ObjectMeta, OwnerReference
from cpg_api.scheduling.attempts import BlockingGroup, LastAttempt
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.statuses import TopologyDomain
from cpg_cli.analysis.changes import pod_with
from cpg_cli.analysis.tree_model import TreeModel
from cpg_cli.cluster.namespace_objects import Changed, Listed, NamespaceObjects, apply
from cpg_cli.failures import CommandError
from cpg_cli.rendering.trees import print_trees
from cpg_client.flavours import CRD

NOW = 1795158000.0
"""Two hours after the situations were made."""


def read(situation: str) -> NamespaceObjects:
    """Return the objects of a situation as the command reads them."""
    found = objects_of(situation)
    groups = {kind: {one.metadata.key: one for one in objects} for kind, objects in found.groups[CRD].items()}
    return NamespaceObjects({CRD: groups}, {pod.metadata.key: pod for pod in found.by_kind[Pod]})


def with_status(found: Any, status: str, reason: str, message: str = "", **fields: Any) -> Any:  # noqa: ANN401 - a group
    """Return a group with a scheduling condition."""
    condition = Condition(f"{found.kind}InitiallyScheduled", status, reason=reason, message=message)
    return replace(found, status=replace(found.status, conditions=(condition,), **fields))


def text_of(objects: NamespaceObjects, target: str | None = None, **options: Any) -> str:
    """Return trees as text without colors."""
    console = Console(file=io.StringIO(), width=160, soft_wrap=True, highlight=False)
    print_trees(console, TreeModel(objects).view(target, "default", **options), now=NOW)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def waiting_tree() -> NamespaceObjects:
    """Return a tree that is blocked at one of its groups, by a JobSet, with a pod that is placed."""
    objects = read("search-budget")
    owner = OwnerReference(api_version="jobset.x-k8s.io/v1alpha2", kind="JobSet", name="model", controller=True)
    groups = objects.groups[CRD]
    for key, group in groups[PodGroup].items():
        groups[PodGroup][key] = with_status(group, "False", "Unschedulable", "PodGroup x cannot be placed: no room")
    blocking = groups[PodGroup]["default/train-3"]
    groups[PodGroup]["default/train-3"] = with_status(blocking, "False", "Unschedulable", "no room")
    root = with_status(
        groups[CompositePodGroup]["default/train"], "False", "Unschedulable", domain=TopologyDomain("block", "b1")
    )
    groups[CompositePodGroup]["default/train"] = replace(
        root, metadata=replace(root.metadata, owner_references=(owner,))
    )
    objects.pods["default/train-0-0"] = pod_with(objects.pods["default/train-0-0"], node_name="n1")
    return objects


def test_a_tree_with_its_blocking_group() -> None:
    """Without an attempt in the status, the mark is at the first group that fails by itself."""
    assert_golden("tree/blocked.txt", text_of(waiting_tree()))


def test_the_attempt_says_which_group_blocks() -> None:
    """The mark is where the last attempt failed."""
    objects = waiting_tree()
    attempt = LastAttempt("Impossible", blocked_at=BlockingGroup("PodGroup", "train-5"))
    roots = objects.groups[CRD][CompositePodGroup]
    root = roots["default/train"]
    roots["default/train"] = replace(root, status=replace(root.status, attempt=attempt))
    marked = next(line for line in text_of(objects).splitlines() if "<- blocks" in line)
    assert marked.startswith("└─ pg/train-5")


@pytest.mark.parametrize("target", ["train", "cpg/train", "train-2", "pg/train-2", "po/train-2-0", "jobset/model"])
def test_a_tree_is_found(target: str) -> None:
    """By each of its groups, a pod, or its owner."""
    assert text_of(waiting_tree(), target).splitlines()[1].startswith("cpg/train of JobSet/model")


def test_an_unknown_target() -> None:
    """The error names the command that lists all trees."""
    with pytest.raises(CommandError, match="nothing is no tree of namespace default") as caught:
        text_of(waiting_tree(), "nothing")
    assert caught.value.hint == "see `kubectl cpg tree`"


@pytest.mark.parametrize("situation", ["missing-group", "late-root", "capacity", "invalid-tree"])
def test_trees_of_situations(situation: str) -> None:
    """A missing group or parent is shown, with all that names it."""
    assert_golden(f"tree/{situation}.txt", text_of(read(situation), with_pods=True))


def test_pods_without_a_group_are_counted() -> None:
    """They are not listed one by one."""
    objects = NamespaceObjects({CRD: {}})
    objects.pods["default/a"] = Pod(ObjectMeta(name="a", namespace="default"), status=PodStatus(phase="Pending"))
    objects.pods["default/b"] = pod_with(objects.pods["default/a"], node_name="n1")
    assert text_of(objects) == "2 pods are in no group; 1 waits\n"


def test_changes_are_applied() -> None:
    """An event replaces or removes one object, a list all of a kind."""
    objects = read("capacity")
    pod = objects.pods["default/train-0"]
    apply(objects, Changed("", Pod, "default/train-0", pod_with(pod, node_name="n0")))
    assert "1/4" in text_of(objects)
    apply(objects, Changed("", Pod, "default/train-0", None))
    assert "0/3" in text_of(objects)
    apply(objects, Listed("", Pod, {}))
    assert "0/0" in text_of(objects)
    apply(objects, Listed(CRD, PodGroup, {}))
    assert text_of(objects) == "no groups and no pods\n"
