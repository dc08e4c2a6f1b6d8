"""The demo, step by step."""

from story.cluster import CHART, NAMESPACE, DemoCluster, rack
from story.state import ClusterState, Pod

EXAMPLE = "examples/04-preemption"
PODS = 10
"""The pods of each of the two trees."""


def run_steps(demo: DemoCluster) -> None:
    """Run all steps."""
    show_nodes(demo)
    install_chart(demo)
    tree_waits(demo)
    add_room(demo)
    preempt(demo)
    suggest_next(demo)


def show_nodes(demo: DemoCluster) -> None:
    """Show the racks."""
    demo.screen.step(
        "Nodes",
        "Two blocks with one rack of four nodes each, 4 CPUs per node. Labels name the block and rack of a node.",
    )
    demo.kubectl("get nodes -L topology.cpg.dev/block,topology.cpg.dev/rack")


def install_chart(demo: DemoCluster) -> None:
    """Install the chart and run its processes."""
    demo.screen.step(
        "The chart",
        "It installs the kinds, a scheduler beside the cluster's own, and an operator. Pods are simulated here, so the "
        "processes of the Deployments run on this machine, with the rights of their service accounts.",
    )
    demo.helm(
        f"install kube-cpg {CHART} --namespace {NAMESPACE} --create-namespace --wait "
        "--set image.repository=kube-cpg,scheduler.replicas=1"
    )
    demo.host()
    demo.kubectl(f"get deployments,leases --namespace {NAMESPACE}")


def tree_waits(demo: DemoCluster) -> None:
    """Apply a tree that does not fit, and show why."""
    demo.screen.step(
        "A tree waits",
        "A training job of two replicas, each in one rack, both in one block. Each block has room for one replica. "
        "So no pod is placed, instead of half of them, and the tree says why.",
    )
    demo.kubectl(f"apply -f {EXAMPLE}/objects.yaml")
    demo.watch(lambda state: is_waiting(state, "train-job"), "the tree train-job waits and says why")
    path = '{.status.conditions[?(@.type=="CompositePodGroupInitiallyScheduled")].message}'
    demo.screen.quote(demo.query(f"get cpg train-job -o jsonpath='{path}'"))


def add_room(demo: DemoCluster) -> None:
    """Add a rack, and wait until the tree is placed."""
    demo.screen.step(
        "Room appears",
        "A second rack in block-1 makes room for both replicas: the tree is retried and placed as a whole.",
    )
    demo.add_nodes(rack(1, 2))
    demo.watch(lambda state: is_placed(state, "train-job"), "the tree train-job is placed")
    demo.kubectl("get cpg")


def preempt(demo: DemoCluster) -> None:
    """Apply a tree of higher priority, and wait until it has preempted the other as a whole."""
    demo.screen.step(
        "A tree of higher priority",
        "It has the same shape, and only block-1 has two racks. The training job has disruptionMode all: if one of its "
        "pods is evicted, all are. It waits again, and says why.",
    )
    demo.kubectl(f"apply -f {EXAMPLE}/urgent.yaml")
    demo.watch(
        lambda state: is_placed(state, "urgent-job") and is_preempted(state, "train-job"),
        "the tree urgent-job has preempted train-job",
    )
    columns = "custom-columns=POD:.involvedObject.name,WHY:.message"
    demo.kubectl(f"get events --field-selector reason=Preempted,involvedObject.name=train-driver-0-0 -o {columns}")
    demo.kubectl("get cpg")
    path = '{.items[0].status.conditions[?(@.type=="PodScheduled")].message}'
    demo.screen.quote(demo.query(f"get pods -l scheduling.cpg.dev/pod-group=train-driver-0 -o jsonpath='{path}'"))


def suggest_next(demo: DemoCluster) -> None:
    """List commands to try in the cluster, which stays up."""
    demo.screen.step(
        "What next",
        "The cluster stays up, with the scheduler and the operator. In this terminal or another one:",
    )
    for why, line in (
        ("use it from your shell, with kubectl, helm and our commands", 'eval "$(.venv/bin/cpg-lab env --name demo)"'),
        ("watch the trees", "kubectl get cpg -w"),
        (
            "add a second rack to block-2, and see the training job placed",
            f'cpg-lab nodes --name demo "{rack(2, 2)}"',
        ),
        (
            "see why the training job waits, and what would help",
            "kubectl cpg explain train-job",
        ),
        ("delete the urgent tree", f"kubectl delete -f {EXAMPLE}/urgent.yaml"),
        ("create a gang of your own", "less docs/quickstart.md"),
        ("stop the cluster", "make lab-down"),
    ):
        demo.screen.suggest(why, line)


def is_waiting(state: ClusterState, root: str) -> bool:
    """Return whether all pods of a tree exist, none has a node, and the tree says why."""
    found = state.group(root)
    return (
        found is not None
        and found.reason == "Unschedulable"
        and found.pods == PODS
        and not any(map(_has_node, state.pods_of(root)))
    )


def is_placed(state: ClusterState, root: str) -> bool:
    """Return whether all pods of a tree run on nodes, and its status says so."""
    found = state.group(root)
    return (
        found is not None
        and found.health == "MinimumMet"
        and found.scheduled == PODS
        and sum(map(_has_node, state.pods_of(root))) == PODS
    )


def is_preempted(state: ClusterState, root: str) -> bool:
    """Return whether all pods of a tree were replaced, none has a node, and each says why."""
    found, pods = state.group(root), state.pods_of(root)
    return (
        found is not None
        and found.health == "Pending"
        and len(pods) == PODS
        and all(pod.message and not pod.node for pod in pods)
    )


def _has_node(pod: Pod) -> bool:
    return bool(pod.node)
