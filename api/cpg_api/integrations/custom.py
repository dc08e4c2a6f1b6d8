"""Kinds of owners that the settings describe: labels name the role and the replica of a pod, paths lead to the sizes.

The kind itself has to control its pods: its name in the controller reference is the owner's part in the name of the
group. Pods of a Job or a StatefulSet that such an owner makes are not covered, because labels alone would say so.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from cpg_api.core.pod import Pod
from cpg_api.integrations.naming import PODS, Parts, checked
from cpg_api.integrations.owners import MemberTemplate, OwnerStatus
from cpg_api.integrations.policy import JOB_INDEX, REPLICA_BY, OwnerPolicy
from cpg_api.integrations.trees import MAX_PARTS, Child, Naming, OwnerKind, Shape, Template, composite, flat, gang, leaf
from cpg_api.meta import ObjectMeta, OwnerReference
from cpg_api.parsing import Rejected, convert_object
from cpg_api.problems import quote
from cpg_api.scheduling.names import MAX_REPLICAS
from cpg_api.scheduling.workload import WorkloadSpec
from cpg_api.schema import DNS_LABEL, DNS_SUBDOMAIN, LABEL_KEY
from cpg_api.structs import ApiStruct

REPLICA = "replica"
OUR_KINDS = ("PodGroup", "CompositePodGroup", "Workload")
"""Kinds that the operator reconciles by themselves."""

_PATH = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"
_PATTERNS = {
    "group": (DNS_SUBDOMAIN, "an API group"),
    "version": (DNS_LABEL, "a version"),
    "kind": (r"^[A-Z][A-Za-z0-9]*$", "a kind"),
    "plural": (DNS_LABEL, "the plural of a kind"),
    "prefix": (DNS_LABEL, "a DNS label"),
    "template": (_PATH, "a path"),
}
_OPTIONAL = {
    "size": (_PATH, "a path"),
    "roles": (_PATH, "a path"),
    "roleLabel": (LABEL_KEY, "the key of a label"),
    "replicas": (_PATH, "a path"),
    "replicaLabel": (LABEL_KEY, "the key of a label"),
}


class CustomOwner(ApiStruct, frozen=True):
    """An owner of a kind that the settings describe."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] | None = None
    status: OwnerStatus = OwnerStatus()


class _Role(Struct, frozen=True):
    """Equal replicas, each of some pods."""

    name: str
    size: int
    replicas: int
    template: MemberTemplate


class _MisfitError(Exception):
    """The spec of an owner is not as its kind's settings say."""


class CustomKind(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A kind of owner, and where the parts of its trees are. Paths are keys of ``spec``, joined by dots."""

    group: str
    """The API group of the kind."""
    version: str
    """The version that is read."""
    kind: str
    """The kind; it controls its pods itself."""
    plural: str
    """The resource."""
    template: str
    """The path to the pod template, in each role where there are roles."""
    size: str = ""
    """The path to the number of pods, of each replica and role; empty: 1."""
    roles: str = ""
    """The path to the roles: a list of objects with a name, or a map; empty: all pods are alike."""
    role_label: str = ""
    """The label of pods that has the name of the role, with roles only."""
    replicas: str = ""
    """The path to the number of replicas, in each role where there are roles; empty: there are none."""
    replica_label: str = ""
    """The label of pods that has the number of the replica from 0, with replicas only."""
    prefix: str = ""
    """The first part of the names of groups; empty: the kind in lower case."""

    @property
    def first_part(self) -> str:
        """Return the first part of the names of groups."""
        return self.prefix or self.kind.lower()

    @property
    def owner_kind(self) -> OwnerKind:
        """Return the kind as the operator reads it."""
        return OwnerKind(self.first_part, self.group, (self.version,), self.plural, self.kind, CustomOwner, self.shape)

    def derive(self, pod: Pod, controller: OwnerReference) -> Parts | None:
        """Return the parts for a pod: its controller is the owner, and labels name its role and its replica."""
        labels = pod.metadata.labels
        role = labels.get(self.role_label, "").lower() if self.role_label else ""
        number = labels.get(self.replica_label, "") if self.replica_label else ""
        if self.replica_label and not (number.isascii() and number.isdigit()):
            return None
        if not self.role_label:
            role = REPLICA if self.replica_label else PODS
        return checked(self.first_part, controller.name, role, *([number] if self.replica_label else []))

    def shape(self, owner: CustomOwner, policy: OwnerPolicy, schedulers: frozenset[str]) -> Shape:
        """Return the templates of an owner's tree; roles with pods that are not ours are left out."""
        if owner.status.is_finished:
            return Shape(rests=True)
        try:
            roles = [role for role in self._roles(owner.spec or {}) if role.template.is_ours(schedulers)]
            return self._tree(owner.metadata.name, roles, policy) if roles else Shape()
        except _MisfitError as error:
            return Shape(problems=(str(error),))

    def _roles(self, spec: Mapping[str, Any]) -> Iterator[_Role]:
        """Yield the roles; an owner without roles is one."""
        if not self.roles:
            yield self._role(REPLICA if self.replicas else PODS, spec, "spec")
            return
        path, found = f"spec.{self.roles}", _find(spec, self.roles)
        if isinstance(found, Mapping):
            named: Sequence[tuple[Any, Any]] = list(found.items())
        elif isinstance(found, Sequence) and not isinstance(found, str):
            named = [(one.get("name") if isinstance(one, Mapping) else None, one) for one in found]
        else:
            named = []
        for name, plain in named:
            if not isinstance(name, str) or not isinstance(plain, Mapping):
                raise _MisfitError(f"{path}: a role has no name, or is no object")
            yield self._role(name.lower(), plain, f"{path}.{name}")

    def _role(self, name: str, plain: Mapping[str, Any], path: str) -> _Role:
        template = convert_object(_find(plain, self.template) or {}, MemberTemplate)
        if isinstance(template, Rejected):
            problems = ", ".join(map(str, template.problems))
            raise _MisfitError(f"{path}.{self.template}: is no pod template: {problems}")
        size, replicas = (_count(plain, field, path) for field in (self.size, self.replicas))
        return _Role(name, size, replicas, template)

    def _tree(self, owner: str, roles: Sequence[_Role], policy: OwnerPolicy) -> Shape:
        _check(self.first_part, owner, roles)
        (priority_class,) = {role.template.spec.priority_class_name for role in roles}
        if not self.roles and not self.replicas:
            minimum = policy.min_count or max(roles[0].size, 1)
            return flat(PODS, minimum, policy, priority_class)
        problems: tuple[str, ...] = ()
        pairs = policy.pairs_replicas and bool(self.roles and self.replicas)
        if pairs and len({role.replicas for role in roles}) > 1:
            pairs = False
            problems = (f"{REPLICA_BY}: {JOB_INDEX} needs the same number of replicas in all roles",)
        naming = Naming([role.name for role in roles])
        root = naming.free("root")
        children = _paired(roles, policy, naming) if pairs else self._by_role(roles, policy, naming)
        top = gang(root, children, naming, minimum=policy.min_groups, constraints=policy.whole, mode=policy.mode)
        return Shape(WorkloadSpec(composite_pod_group_templates=(top,)), problems)

    def _by_role(self, roles: Sequence[_Role], policy: OwnerPolicy, naming: Naming) -> list[Child]:
        """Return a group for each role, with replicas a gang of them; without roles, the replicas alone."""
        children = []
        for role in roles:
            replicas = role.replicas if self.replicas else None
            below = _leaf(role, policy, replicas=replicas)
            starts = int(role.size > 0 and role.replicas > 0)
            if replicas is None:
                children.append(Child(below, starts))
            elif not self.roles:
                children.append(Child(below, starts * replicas))
            else:
                name = naming.free(f"{role.name}-replicas")
                children.append(Child(composite(name, max(replicas, 1), [below], mode=policy.mode), starts))
        return children


def _paired(roles: Sequence[_Role], policy: OwnerPolicy, naming: Naming) -> list[Child]:
    """Return one template of gangs, each with the replicas of one number in all roles."""
    replicas, plain = roles[0].replicas, policy._replace(replica=None)
    leaves = [Child(_leaf(role, plain), int(role.size > 0)) for role in roles]
    name = naming.free(REPLICA)
    pair = gang(name, leaves, naming, replicas=replicas, constraints=policy.replica, mode=policy.mode)
    return [Child(pair, replicas)]


def _leaf(role: _Role, policy: OwnerPolicy, *, replicas: int | None = None) -> Template:
    return leaf(
        role.name,
        policy.min_count or max(role.size, 1),
        replicas=replicas,
        constraints=policy.replica,
        mode=policy.mode,
        priority_class=role.template.spec.priority_class_name,
    )


def _check(prefix: str, owner: str, roles: Sequence[_Role]) -> None:
    """Raise an error where roles cannot be one tree."""
    classes = sorted({role.template.spec.priority_class_name for role in roles})
    if len(classes) > 1:
        raise _MisfitError(f"its roles have different priority classes: {', '.join(classes)}")
    if len(roles) > MAX_PARTS:
        raise _MisfitError(f"it has {len(roles)} roles, and a tree may have {MAX_PARTS}")
    for name, count in Counter(role.name for role in roles).items():
        if count > 1 or checked(prefix, owner, name, str(MAX_REPLICAS)) is None:
            raise _MisfitError(f"{quote(owner)} and its role {quote(name)} must be DNS labels, and different ones")
    most = max(role.replicas for role in roles)
    if most > MAX_REPLICAS:
        raise _MisfitError(f"it has {most} replicas, and a tree may have {MAX_REPLICAS}")


def _find(plain: Mapping[str, Any], path: str) -> Any:  # noqa: ANN401  # JSON
    """Return what is at a path, or None."""
    found: Any = plain
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _count(plain: Mapping[str, Any], path: str, place: str) -> int:
    """Return the number at a path; 1 where there is none."""
    found = _find(plain, path) if path else None
    if found is None:
        return 1
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise _MisfitError(f"{place}.{path}: must be a number from 0, not {quote(str(found))}")
    return found


def custom_problems(kinds: Sequence[CustomKind], others: Sequence[OwnerKind]) -> Iterator[str]:
    """Yield the problems of kinds in the settings, beside the kinds of other integrations."""
    taken = {word for other in others for word in (other.kind, other.prefix)} | set(OUR_KINDS)
    for place, kind in enumerate(kinds):
        here = f"customIntegrations[{place}]"
        yield from (f"{here}.{problem}" for problem in _field_problems(kind))
        for word in (kind.kind, kind.first_part):
            if word in taken:
                yield f"{here}: {quote(word)} is the kind or the prefix of another integration"
        taken |= {kind.kind, kind.first_part}


def _field_problems(kind: CustomKind) -> Iterator[str]:
    given = {**msgspec.to_builtins(kind), "prefix": kind.first_part}
    for name, (pattern, what) in (_PATTERNS | _OPTIONAL).items():
        value = given[name]
        if (value or name in _PATTERNS) and not re.fullmatch(pattern, value):
            yield f"{name}: {quote(value)} is not {what}"
    for path, label in (("roles", "roleLabel"), ("replicas", "replicaLabel")):
        if bool(given[path]) != bool(given[label]):
            yield f"{path}: takes {label} as well, and the other way round"
