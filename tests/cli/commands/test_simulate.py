"""``simulate`` over the examples and over files that are wrong, without a cluster."""

import io
import json
from pathlib import Path

import pytest
from tests.cli.golden_files import assert_golden
from tests.cli.invoking import CommandRunner

from cpg_api.decoding import decode

ROOT = Path(__file__).parents[3]
NODES = str(ROOT / "examples" / "nodes.yaml")
EXAMPLES = sorted(folder.name for folder in (ROOT / "examples").iterdir() if folder.is_dir())
SMALL = str(Path(__file__).parents[1] / "clusters" / "small.yaml")
GANG = """
apiVersion: scheduling.cpg.dev/v1alpha3
kind: PodGroup
metadata: {name: gang}
spec: {schedulingPolicy: {gang: {minCount: %s}}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {scheduling.cpg.dev/pod-group: gang}}
spec: {schedulerName: %s, containers: [{name: c, resources: {limits: {cpu: "%s"}}}]}
"""
OURS = "cpg-scheduler"
UNKNOWN_CLASS = (POD % ("p", OURS, "1")).replace("spec: {", "spec: {priorityClassName: none, ")
WORKLOAD = """
apiVersion: scheduling.cpg.dev/v1alpha3
kind: Workload
metadata: {name: w}
spec:
  podGroupTemplates:
    - {name: a, schedulingPolicy: {basic: {}}, priority: 1}
    - {name: a, schedulingPolicy: {basic: {}}, priority: 2}
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return a folder for manifests."""
    return tmp_path


def _write(folder: Path, *documents: str) -> str:
    path = folder / "objects.yaml"
    path.write_text("---\n".join(documents))
    return str(path)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_fits_into_the_nodes_of_the_examples(kubectl_cpg: CommandRunner, name: str) -> None:
    """Each of them is placed, without a cluster, and the text is that of its golden file."""
    found = kubectl_cpg("simulate", "-f", str(ROOT / "examples" / name), "--cluster", NODES)
    assert (found.code, found.err) == (0, "")
    assert_golden(f"simulate/{name}.txt", found.out)


def test_victims_are_named_with_their_preemptor(kubectl_cpg: CommandRunner, files: Path) -> None:
    """A gang of higher priority takes the room of a pod, and not that of another gang."""
    urgent = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: urgent}\nvalue: 5\n"
    pod = POD.replace("spec: {", "spec: {priorityClassName: urgent, ") % ("big", OURS, "4")
    gang = (GANG % 1).replace("spec: {", "spec: {priorityClassName: urgent, ")
    found = kubectl_cpg("simulate", "-f", _write(files, gang, urgent, pod), "--cluster", SMALL, "-o", "json")
    answer = decode(found.out)
    assert found.code == 0
    assert answer["fits"]
    (victim,) = answer["victims"]
    assert (victim["preemptor"], victim["pods"]) == ("PodGroup gang", ["default/alone"])
    assert "needs its 2 CPU on n21" in victim["reason"]


def test_what_does_not_fit_says_why(kubectl_cpg: CommandRunner, files: Path) -> None:
    """The exit code is 1, and the reason is the scheduler's."""
    pods = [POD % (f"p{number}", OURS, "3") for number in range(3)]
    found = kubectl_cpg("simulate", "-f", _write(files, GANG % 4, *pods), "--cluster", NODES)
    assert found.code == 1
    assert "waiting for 1 more pod: minCount is 4, there are 3" in found.out


def test_pods_beyond_the_minimum_may_wait_unless_strict(kubectl_cpg: CommandRunner, files: Path) -> None:
    """A gang has its minimum, and a pod waits."""
    file = _write(files, GANG % 1, POD % ("fits", OURS, "3"), POD % ("big", OURS, "99"))
    found = kubectl_cpg("simulate", "-f", file, "--cluster", NODES)
    assert found.code == 0
    assert "fits: 1 of 2 pods placed; 1 pod beyond the minimum would wait" in found.out
    assert kubectl_cpg("simulate", "-f", file, "--cluster", NODES, "--strict").code == 1


GPUS = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "8", memory: 8Gi, pods: "110"}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: device.driver == "gpu.example.com"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n1}
spec:
  driver: gpu.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}, {name: gpu-1}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: held, namespace: default}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}
status:
  allocation: {devices: {results: [{request: r, driver: gpu.example.com, pool: n1, device: gpu-0}]}}
  reservedFor: [{resource: pods, name: running, uid: running}]
---
apiVersion: v1
kind: Pod
metadata: {name: running, namespace: default, uid: running}
spec:
  schedulerName: cpg-scheduler
  nodeName: n1
  containers: [{name: c, resources: {requests: {cpu: "1"}}}]
  resourceClaims: [{name: gpu, resourceClaimName: held}]
"""
TEMPLATE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}}
"""
URGENT = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: urgent}\nvalue: 5\n"


def _with_gpu(pod: str, priority: str = "") -> str:
    claim = "resourceClaims: [{name: gpu, resourceClaimTemplateName: one}], "
    return pod.replace("spec: {", f"spec: {{{claim}{f'priorityClassName: {priority}, ' if priority else ''}")


def test_claims_are_made_from_templates_and_allocated(kubectl_cpg: CommandRunner, files: Path) -> None:
    """A running pod has one of two devices, so a second gang pod fits only in its place."""
    (files / "cluster.yaml").write_text(GPUS)
    pods = [_with_gpu(POD % (name, OURS, "1")) for name in "ab"]
    for number, code in ((1, 0), (2, 1)):
        file = _write(files, TEMPLATE, GANG % number, *pods[:number])
        found = kubectl_cpg("simulate", "-f", file, "--cluster", str(files / "cluster.yaml"))
        assert (found.code, found.err) == (code, "")
        assert "ResourceClaimTemplate" not in found.out
    urgent = [_with_gpu(POD % (name, OURS, "1"), "urgent") for name in "ab"]
    gang = (GANG % 2).replace("spec: {", "spec: {priorityClassName: urgent, ")
    file = _write(files, TEMPLATE, URGENT, gang, *urgent)
    found = kubectl_cpg("simulate", "-f", file, "--cluster", str(files / "cluster.yaml"), "-o", "json")
    answer = decode(found.out)
    assert (found.code, [one["pods"] for one in answer["victims"]]) == (0, [["default/running"]])


def test_a_template_that_makes_no_sense_is_refused(kubectl_cpg: CommandRunner, files: Path) -> None:
    """With its place; a pod whose template is in no file waits for its claim."""
    (files / "cluster.yaml").write_text(GPUS)
    wrong = _write(files, "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: one}\nspec: 3")
    found = kubectl_cpg("simulate", "-f", wrong, "--cluster", str(files / "cluster.yaml"))
    assert (found.code, "objects.yaml" in found.err, "default/one: spec" in found.err) == (2, True, True)
    file = _write(files, GANG % 1, _with_gpu(POD % ("p", OURS, "1")))
    found = kubectl_cpg("simulate", "-f", file, "--cluster", str(files / "cluster.yaml"))
    assert found.code == 1


def test_manifests_come_from_standard_input(kubectl_cpg: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Helm writes them, with kinds that create no pods."""
    text = "---\n".join([GANG % 1, POD % ("p", OURS, "1"), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"])
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    found = kubectl_cpg("simulate", "-f", "-", "--cluster", NODES)
    assert found.code == 0
    assert "ConfigMap c" in found.out


def test_pods_of_another_scheduler_are_named(kubectl_cpg: CommandRunner, files: Path) -> None:
    """Without any pod of ours, there is nothing to simulate, and the next step is said."""
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n"
    found = kubectl_cpg("simulate", "-f", _write(files, pod), "--cluster", NODES)
    assert found.code == 2
    assert "next: set schedulerName: cpg-scheduler in the pod templates" in found.err
    both = _write(files, pod, GANG % 1, POD % ("q", OURS, "1"))
    found = kubectl_cpg("simulate", "-f", both, "--cluster", NODES)
    assert found.code == 0
    assert "pods with schedulerName default-scheduler are not simulated" in found.out


def test_an_invalid_tree_is_refused_with_the_message_of_the_operator(kubectl_cpg: CommandRunner, files: Path) -> None:
    """A child of another priority than its parent."""
    root = "apiVersion: scheduling.cpg.dev/v1alpha3\nkind: CompositePodGroup\nmetadata: {name: root}\n"
    policy = "schedulingPolicy: {gang: {minGroupCount: 1}}, priority: 5"
    root += f"spec: {{workloadRef: &ref {{workloadName: w, templateName: root}}, {policy}}}\n"
    gang = (GANG % 1).replace(
        "spec: {", "spec: {parentCompositePodGroupName: root, workloadRef: {workloadName: w, templateName: gang}, "
    )
    found = kubectl_cpg("simulate", "-f", _write(files, root, gang, POD % ("p", OURS, "1")), "--cluster", NODES)
    assert found.code == 1
    assert "priority" in found.out


@pytest.mark.parametrize(
    ("documents", "error"),
    [
        (["a: [1"], "no YAML: "),
        (["a: 1\n", "b: 2\n"], "document 1: apiVersion is missing"),
        (["[1]"], "document 1: is no object"),
        (["apiVersion: v1\nkind: Pod\n"], "document 1: metadata.name is missing"),
        ([GANG % 1, GANG % 2], "document 2: PodGroup gang is there already, in"),
        ([GANG % 0], "document 1: PodGroup gang: spec.schedulingPolicy.gang.minCount: 0 should be greater"),
        ([GANG % "'3'"], "document 1: PodGroup gang: spec.schedulingPolicy.gang.minCount: Expected `int`"),
        ([(GANG % 1).replace("gang: {m", "gnag: {m")], "spec.schedulingPolicy.gnag: unknown field"),
        ([(GANG % 1).replace("{gang: {minCount: 1}}", "{}")], "must specify one of: `basic`, `gang`"),
        ([(GANG % 1).replace("v1alpha3", "v1")], "has apiVersion scheduling.cpg.dev/v1, not"),
        ([(GANG % 1).replace("{name: gang}", "{name: gang, labels: 3}")], "metadata.labels: Expected `object`"),
        ([UNKNOWN_CLASS], "no PriorityClass with name none was found"),
    ],
)
def test_wrong_files_are_refused_with_their_place(
    kubectl_cpg: CommandRunner, files: Path, documents: list[str], error: str
) -> None:
    """Each mistake has exit code 2 and names file and document."""
    found = kubectl_cpg("simulate", "-f", _write(files, *documents), "--cluster", NODES)
    assert (found.code, found.out) == (2, "")
    assert "objects.yaml, document" in found.err
    assert error in found.err


def test_wrong_templates_are_refused(kubectl_cpg: CommandRunner, files: Path) -> None:
    """The rules over all templates of a Workload: names, depth and priorities."""
    found = kubectl_cpg("simulate", "-f", _write(files, WORKLOAD), "--cluster", NODES)
    assert found.code == 2
    assert "template names must be unique, and `a` is there more than once" in found.err
    assert "all priority and priorityClassName values must be identical" in found.err


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--set", "workers.minCount=5"], "minCount is 5, there are 4"),
        (["--scale", "train-workers-0=3"], "minCount is 4, there are 3"),
        (["--set", "job.topology=kubernetes.io/none"], "kubernetes.io/none"),
    ],
)
def test_overrides_change_the_files(kubectl_cpg: CommandRunner, options: list[str], text: str) -> None:
    """Templates and groups of one template change together."""
    found = kubectl_cpg("simulate", "-f", str(ROOT / "examples" / "02-tree"), "--cluster", NODES, *options)
    assert found.code == 1
    assert text in " ".join(found.out.split())


@pytest.mark.parametrize(
    ("example", "options", "pods"),
    [
        ("03-workload", ["--scale", "replica=1", "--set", "job.minGroupCount=1"], 5),
        ("06-jobset", ["--scale", "workers=1", "--scale", "driver=1"], 5),
        ("07-leaderworkerset", ["--scale", "serve=1"], 4),
        ("08-ray", ["--scale", "actors=6"], 7),
        ("09-job", ["--scale", "finetune=2"], 2),
    ],
)
def test_sizes_change_of_every_kind(kubectl_cpg: CommandRunner, example: str, options: list[str], pods: int) -> None:
    """Replicas of templates, of owners and of their roles."""
    file = str(ROOT / "examples" / example)
    answer = decode(kubectl_cpg("simulate", "-f", file, "--cluster", NODES, *options, "-o", "json").out)
    assert answer["fits"]
    assert sum(tree["placedPods"] for tree in answer["trees"]) == pods


@pytest.mark.parametrize(
    ("option", "error"),
    [
        (["--set", "nothing.minCount=1"], "the files have no nothing"),
        (["--set", "workers.minGroupCount=1"], "workers has no minGroupCount that can be set"),
        (["--set", "workers=1"], "is not NAME.FIELD=VALUE"),
        (["--set", "workers.minCount"], "is not NAME.FIELD=VALUE"),
        (["--scale", "workers=many"], "'many' is no number"),
        (["--scale", "train-job=2"], "train-job has no replicas that can be set"),
        (["--scale", "replica=2"], "replica has no replicas that can be set"),
        (["--cluster", "nowhere.yaml"], "nowhere.yaml: No such file"),
        (["-f", "nowhere"], "nowhere: No such file"),
    ],
)
def test_wrong_options_say_what_there_is(kubectl_cpg: CommandRunner, option: list[str], error: str) -> None:
    """The exit code is 2."""
    found = kubectl_cpg("simulate", "-f", str(ROOT / "examples" / "02-tree"), "--cluster", NODES, *option)
    assert found.code == 2
    assert error in found.err


def test_what_exists_is_not_submitted_again(kubectl_cpg: CommandRunner, files: Path) -> None:
    """A group of the cluster, and the Workload of an owner."""
    file = _write(files, (GANG % 1).replace("gang}", "train}"))
    found = kubectl_cpg("simulate", "-f", file, "--cluster", SMALL)
    assert found.code == 2
    assert "PodGroup default/train exists in the cluster already" in found.err
    assert kubectl_cpg("simulate", "-n", "other", "-f", file, "--cluster", SMALL).code == 0


def test_built_in_groups_are_simulated(kubectl_cpg: CommandRunner, files: Path) -> None:
    """The built-in API of Kubernetes, with membership by a field of the pod."""
    gang = (GANG % 2).replace("scheduling.cpg.dev/v1alpha3", "scheduling.k8s.io/v1alpha3")
    pod = POD.replace(", labels: {scheduling.cpg.dev/pod-group: gang}", "")
    pod = pod.replace("spec: {", "spec: {schedulingGroup: {podGroupName: gang}, ")
    pods = [pod % (name, OURS, "1") for name in "ab"]
    answer = decode(kubectl_cpg("simulate", "-f", _write(files, gang, *pods), "--cluster", NODES, "-o", "json").out)
    assert [(tree["flavour"], tree["placedPods"]) for tree in answer["trees"]] == [("native", 2)]


def test_many_pods_are_counted(kubectl_cpg: CommandRunner, files: Path) -> None:
    """The pods of a Deployment in no group: those that wait come first."""
    container = {"name": "c", "resources": {"requests": {"cpu": "60"}}}
    spec = {"replicas": 30, "template": {"spec": {"schedulerName": OURS, "containers": [container]}}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    found = kubectl_cpg("simulate", "-f", _write(files, json.dumps(deployment)), "--cluster", NODES)
    assert found.code == 1
    assert "does not fit: 22 pods would wait; 8 of 30 pods placed" in found.out
    assert "and 10 more" in found.out


def test_terminating_pods_end(kubectl_cpg: CommandRunner, files: Path) -> None:
    """The room of a pod that is being deleted is free."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "4"}}}
    meta = {"name": "old", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    container = {"name": "c", "resources": {"requests": {"cpu": "4"}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"nodeName": "n1", "containers": [container]}}
    nodes = files / "nodes.yaml"
    nodes.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node, pod]}))
    found = kubectl_cpg("simulate", "-f", _write(files, GANG % 1, POD % ("new", OURS, "4")), "--cluster", str(nodes))
    assert found.code == 0


def test_nodes_are_counted_unless_wide(kubectl_cpg: CommandRunner, files: Path) -> None:
    """The first nodes of a group by name."""
    file = _write(files, GANG % 9, *(POD % (f"p{number}", OURS, "3") for number in range(9)))
    assert "and 3 more" in kubectl_cpg("simulate", "-f", file, "--cluster", NODES).out
    assert "more" not in kubectl_cpg("simulate", "-f", file, "--cluster", NODES, "-o", "wide").out


STATEFUL_SET = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  template: {spec: {schedulerName: cpg-scheduler, containers: [{name: c}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {resources: {requests: {storage: 1Gi}}}}]
"""
STORAGE_CLASS = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: disks, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: example.com/disks
volumeBindingMode: WaitForFirstConsumer
"""


@pytest.mark.parametrize("classes", [[], [STORAGE_CLASS], [STORAGE_CLASS.replace("WaitForFirstConsumer", "Immediate")]])
def test_claims_are_bound(kubectl_cpg: CommandRunner, files: Path, classes: list[str]) -> None:
    """By the scheduler where their class waits for a pod, else at once; an ordered StatefulSet needs its first pod."""
    found = kubectl_cpg("simulate", "-f", _write(files, STATEFUL_SET, *classes), "--cluster", NODES)
    assert (found.code, found.err) == (0, "")
    assert "fits: 2 of 2 pods placed" in found.out
