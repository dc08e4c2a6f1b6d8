"""The story itself, step by step."""

from story.sights import Pod, Sight
from story.stage import CHART, SPACE, Stage, rack

EXAMPLE = "examples/04-preemption"
PODS = 10
"""Of each of the two trees."""


def tell(stage: Stage) -> None:
    """Tell the story from beginning to end."""
    nodes_appear(stage)
    explanations = chart_is_installed(stage)
    tree_waits(stage)
    room_appears(stage)
    urgent_tree_comes(stage)
    what_next(stage, explanations)


def nodes_appear(stage: Stage) -> None:
    """Show the racks."""
    stage.screen.step(
        "Nodes", "Two racks of four nodes with 4 CPUs each, in two blocks; a node says by labels where it stands."
    )
    stage.kubectl("get nodes -L topology.cpg.dev/block,topology.cpg.dev/rack")


def chart_is_installed(stage: Stage) -> str:
    """Install the chart, and run what its Deployments say; return where the scheduler explains itself."""
    stage.screen.step(
        "The chart",
        "It brings the kinds, a scheduler beside the cluster's own, and an operator. Pods are simulated here; what the "
        "Deployments say these would run, as their service accounts, runs on this machine.",
    )
    stage.helm(
        f"install kube-cpg {CHART} --namespace {SPACE} --create-namespace --wait "
        "--set image.repository=kube-cpg,scheduler.replicas=1"
    )
    urls = stage.host()
    stage.kubectl(f"get deployments,leases --namespace {SPACE}")
    return urls["kube-cpg-scheduler"][0]


def tree_waits(stage: Stage) -> None:
    """Apply a tree that does not fit, and say why."""
    stage.screen.step(
        "A tree waits",
        "A training job of two replicas, each in one rack, both in one block. There is room for each, but in "
        "two blocks. So no pod is placed, rather than half of them, and the tree says why.",
    )
    stage.kubectl(f"apply -f {EXAMPLE}/objects.yaml")
    stage.watch(lambda sight: is_waiting(sight, "train-job"), "a tree that waits and says why")
    path = '{.status.conditions[?(@.type=="CompositePodGroupInitiallyScheduled")].message}'
    stage.screen.quote(stage.ask(f"get cpg train-job -o jsonpath='{path}'"))


def room_appears(stage: Stage) -> None:
    """Add a rack, and see the tree placed."""
    stage.screen.step(
        "Room appears", "A second rack in block-1 is all it takes: the tree is tried again, and placed whole."
    )
    stage.add_nodes(rack(1, 2))
    stage.watch(lambda sight: is_placed(sight, "train-job"), "a tree that is placed")
    stage.kubectl("get cpg")


def urgent_tree_comes(stage: Stage) -> None:
    """Apply a more important tree, and see the other go as a whole."""
    stage.screen.step(
        "A more important tree",
        "It is of the same shape, and only block-1 has two racks. The training job has disruptionMode all: if "
        "any of it goes, all of it goes, at once. It waits again, and says why.",
    )
    stage.kubectl(f"apply -f {EXAMPLE}/urgent.yaml")
    stage.watch(
        lambda sight: is_placed(sight, "urgent-job") and has_given_way(sight, "train-job"), "a tree that is preempted"
    )
    columns = "custom-columns=POD:.involvedObject.name,WHY:.message"
    stage.kubectl(f"get events --field-selector reason=Preempted,involvedObject.name=train-driver-0-0 -o {columns}")
    stage.kubectl("get cpg")
    path = '{.items[0].status.conditions[?(@.type=="PodScheduled")].message}'
    stage.screen.quote(stage.ask(f"get pods -l scheduling.cpg.dev/pod-group=train-driver-0 -o jsonpath='{path}'"))


def what_next(stage: Stage, scheduler: str) -> None:
    """Say what can be tried in the cluster, which is left running."""
    stage.screen.step(
        "What next",
        "The cluster goes on, with the scheduler and the operator. In another terminal, or this one:",
    )
    for why, line in (
        ("aim your shell at it, with kubectl, helm and our commands", 'eval "$(.venv/bin/cpg-lab env --name demo)"'),
        ("watch the trees", "kubectl get cpg -w"),
        (
            "give the training job a second rack in block-2, and see it placed",
            f'cpg-lab nodes --name demo "{rack(2, 2)}"',
        ),
        ("ask the scheduler why, in full detail", f"curl -s {scheduler}/debug/explain/crd/default/train-job"),
        ("take the urgent tree away", f"kubectl delete -f {EXAMPLE}/urgent.yaml"),
        ("write a gang of your own", "less docs/quickstart.md"),
        ("stop the cluster", "make lab-down"),
    ):
        stage.screen.advice(why, line)


def is_waiting(sight: Sight, root: str) -> bool:
    """Tell whether a whole tree is there, nothing of it is placed, and it says why."""
    found = sight.group(root)
    return (
        found is not None
        and found.verdict == "Unschedulable"
        and found.pods == PODS
        and not any(map(_has_node, sight.pods_of(root)))
    )


def is_placed(sight: Sight, root: str) -> bool:
    """Tell whether all pods of a tree have a node and run, and the tree says so."""
    found = sight.group(root)
    return (
        found is not None
        and found.health == "MinimumMet"
        and found.scheduled == PODS
        and sum(map(_has_node, sight.pods_of(root))) == PODS
    )


def has_given_way(sight: Sight, root: str) -> bool:
    """Tell whether the pods of a tree are there anew, none has a node, and each says why."""
    found, pods = sight.group(root), sight.pods_of(root)
    return (
        found is not None
        and found.health == "Pending"
        and len(pods) == PODS
        and all(pod.message and not pod.node for pod in pods)
    )


def _has_node(pod: Pod) -> bool:
    return bool(pod.node)
