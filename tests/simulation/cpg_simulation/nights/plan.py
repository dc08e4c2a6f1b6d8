"""The plan of a night. It is data, so that a night can be played again, told in words, and shortened."""

from typing import Literal, TypeAlias

from msgspec import Struct

Flavour: TypeAlias = Literal["crd", "native"]
DeviceUse: TypeAlias = Literal["", "own", "shared"]
"""The devices that pods claim: none, one for each pod by a template, or one for all pods of a leaf."""


class GroupPlan(Struct, frozen=True, kw_only=True):
    """A group of a tree: a leaf with pods, or an inner one."""

    name: str
    parent: str = ""
    gang: int | None = None
    """minCount or minGroupCount; None for basic."""
    key: str = ""
    """The topology key whose domain all its pods share, if any."""
    is_unit: bool = False
    """Whether it is disrupted as a whole."""
    pods: int | None = None
    """The number of pods of a leaf; None for an inner group."""
    cpu: int = 1000
    """Of each pod, in thousandths."""
    device: DeviceUse = ""
    """Of the pods of a leaf."""


Trait: TypeAlias = Literal[
    "select-disk",
    "apart",
    "prefer-zone",
    "host-port",
    "tolerates",
    "gated",
    "alone",
    "together",
    "follow",
    "spread-nodes",
    "spread-zones",
]
"""What pods ask for beside CPU: a node with a local disk, nodes apart from one another, preferably one zone, a port of
the node, nodes with a taint; to wait until a gate is lifted; a node without pods of other trees, one rack for all, the
rack of a pod of the first leaf; nodes or zones with equal numbers of them."""


class TreePlan(Struct, frozen=True, kw_only=True):
    """A tree, or a single pod where there are no groups."""

    name: str
    priority: str = ""
    groups: tuple[GroupPlan, ...] = ()
    grace: int = 2
    never_preempts: bool = False
    scheduler: str = "cpg-scheduler"
    cpu: int = 1000
    """Of a single pod."""
    device: DeviceUse = ""
    """Of a single pod."""
    from_workload: bool = False
    """Whether its groups take their policies from the templates of a Workload."""
    is_instantiated: bool = False
    """Whether the operator creates its groups from the templates of a Workload."""
    traits: tuple[Trait, ...] = ()
    """Of its pods."""
    has_stable_names: bool = False
    """Whether a new pod has the name of one that is gone, as in a StatefulSet."""
    budget: int | None = None
    """minAvailable of a PodDisruptionBudget for its pods."""


class NodePlan(Struct, frozen=True, kw_only=True):
    """A node."""

    name: str
    cpu: int
    pods: int
    zone: str
    rack: str
    has_disk: bool = False
    is_dedicated: bool = False
    """Whether it has a taint that only some pods tolerate."""
    devices: int = 0
    """How many devices its driver publishes."""


class Submit(Struct, frozen=True, kw_only=True, tag="submit"):
    """A user creates a tree; its controller keeps the number of its pods from then on."""

    at: float
    tree: TreePlan
    shuffled: bool = False
    """Whether its objects are created in any order, with pauses."""


class Finish(Struct, frozen=True, kw_only=True, tag="finish"):
    """The containers of all bound pods of a tree end, and its controller ends."""

    at: float
    tree: str


class Remove(Struct, frozen=True, kw_only=True, tag="remove"):
    """A user deletes a tree: its pods and groups, in any order."""

    at: float
    tree: str


class DeletePods(Struct, frozen=True, kw_only=True, tag="delete-pods"):
    """A user deletes pods of a tree; the controller replaces them."""

    at: float
    tree: str
    count: int
    force: bool = False


class RecreateGroup(Struct, frozen=True, kw_only=True, tag="recreate-group"):
    """A user deletes a group and creates it again under the same name."""

    at: float
    tree: str
    seconds: float


class ChangeMinimum(Struct, frozen=True, kw_only=True, tag="change-minimum"):
    """A user changes the minimum of a group of a tree."""

    at: float
    tree: str
    group: str
    gang: int


class Scale(Struct, frozen=True, kw_only=True, tag="scale"):
    """A user changes the number of pods of a leaf."""

    at: float
    tree: str
    group: str
    pods: int


class LiftGates(Struct, frozen=True, kw_only=True, tag="lift-gates"):
    """A user removes the scheduling gates of the pods of a tree; later ones have none."""

    at: float
    tree: str


Meddling: TypeAlias = Literal["nominate", "unlabel", "relabel", "remove-finalizers", "delete-workload", "delete-all"]


class Meddle(Struct, frozen=True, kw_only=True, tag="meddle"):
    """A user does what no user should: with a pod, with the groups of a tree, or with all pods of the namespace."""

    at: float
    tree: str
    kind: Meddling


Action: TypeAlias = Submit | Finish | Remove | DeletePods | RecreateGroup | ChangeMinimum | Scale | LiftGates | Meddle

RequestFault: TypeAlias = Literal["lose-request", "lose-answer", "cut-answer", "refuse", "throttle", "fail", "delay"]
ProcessFault: TypeAlias = Literal["kill", "stop", "suspend", "slow", "skew-clock", "fast-clock", "terminate"]
NetworkFault: TypeAlias = Literal["cut-off", "lag-watches", "cut-watches", "reset"]
ServerFault: TypeAlias = Literal["restart", "compact", "restore", "refuse-admission"]
NodeFault: TypeAlias = Literal["vanish", "relabel", "cordon", "taint", "shrink", "reject-pods"]
PodFault: TypeAlias = Literal["touch-pods"]
WorldFault: TypeAlias = Literal["stop-controllers"]
ObjectFault: TypeAlias = Literal["replace"]
FaultKind: TypeAlias = (
    RequestFault | ProcessFault | NetworkFault | ServerFault | NodeFault | PodFault | WorldFault | ObjectFault
)


LEADER = "leader"
"""The replica of the scheduler that leads when the fault begins."""
PATIENCE_SECONDS = 10.0
"""A fault that waits for a request begins after this time at the latest."""


class Fault(Struct, frozen=True, kw_only=True):
    """Something that fails for a while. ``target`` is a process or a node; ``requests`` says which ones it hits."""

    kind: FaultKind
    at: float
    seconds: float
    target: str = ""
    requests: str = ""
    share: float = 1.0
    """The share of requests that it hits."""
    amount: float = 0.0
    """How much: seconds of delay, of skew, of history that a restore loses; a rate; a factor."""
    trigger: str = ""
    """A sort of requests: it begins with the first after ``at``. A fault of an object hits what the request is about,
    and one of a node that of its pod."""
    delay: float = 0.0
    """Seconds from that request until it begins."""

    @property
    def end(self) -> float:
        """Return when it is over at the latest."""
        return self.at + self.seconds + (PATIENCE_SECONDS + self.delay if self.trigger else 0.0)


class Night(Struct, frozen=True, kw_only=True):
    """Everything that happens: the seed also decides what is not planned, such as how long bytes are under way."""

    seed: int
    flavour: Flavour
    nodes: tuple[NodePlan, ...]
    actions: tuple[Action, ...]
    faults: tuple[Fault, ...]
    seconds: float
    """When the last action and fault is over."""
    calm: float
    """Seconds without faults at the end, after which everything has to be in order."""
    number: int = 0
    """Its place among nights of one seed."""
    operators: int = 1
    """Replicas of the operator."""
    competitor: bool = False
    """Whether a kube-scheduler places pods of its own on the same nodes."""
    has_devices: bool = False
    """Whether there is a driver for devices, and a controller that makes claims for them."""
