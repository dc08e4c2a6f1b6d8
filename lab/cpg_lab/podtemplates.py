"""Pod templates, and the process that runs the container of one: pure functions of plain data.

A container has a file system and a network of its own, a process has not. So mounted files are written into a folder of
the pod, and a declared port is replaced by a free one on loopback. Both replacements apply to arguments, environment
and files. A feature that a process cannot have (another kind of volume, a variable from a secret) is an error that
names it, so that nothing is ignored silently. Images, resources and security contexts are not read.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct, field

from cpg_lab.errors import DescriptionError
from cpg_lab.ports import LOOPBACK

ConfigMaps = Mapping[str, Mapping[str, str]]
_VARIABLE = re.compile(r"\$(?:\$|\((\w+)\))")
_FIELD = re.compile(r"(?P<path>[\w.]+)(?:\['(?P<key>[^']+)'\])?")


class _NamedReference(Struct, frozen=True, forbid_unknown_fields=True):
    name: str


class _Key(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    key: str


class _Field(Struct, frozen=True, rename="camel"):
    field_path: str


class _Source(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    field_ref: _Field | None = None
    config_map_key_ref: _Key | None = None


class Variable(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A variable of the environment."""

    name: str
    value: str = ""
    value_from: _Source | None = None


class Port(Struct, frozen=True, rename="camel"):
    """A port that a container listens on."""

    container_port: int
    name: str = ""


class HttpGet(Struct, frozen=True):
    """The request of a probe."""

    port: int | str
    path: str = "/"


class Probe(Struct, frozen=True, rename="camel"):
    """A probe of a kubelet."""

    http_get: HttpGet
    period_seconds: int = 10
    timeout_seconds: int = 1
    failure_threshold: int = 3


class Mount(Struct, frozen=True, rename="camel"):
    """The path at which a volume is mounted."""

    name: str
    mount_path: str


class ContainerTemplate(Struct, frozen=True, rename="camel"):
    """What runs."""

    name: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[Variable, ...] = ()
    ports: tuple[Port, ...] = ()
    startup_probe: Probe | None = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    volume_mounts: tuple[Mount, ...] = ()
    env_from: tuple[()] = ()


class _Files(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    name: str
    default_mode: int = 0o644  # the API server fills it in


class TemplateVolume(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A volume with the files of a ConfigMap."""

    name: str
    config_map: _Files


class PodTemplateSpec(Struct, frozen=True, rename="camel"):
    """A pod of one container."""

    containers: tuple[ContainerTemplate]
    service_account_name: str = "default"
    volumes: tuple[TemplateVolume, ...] = ()
    init_containers: tuple[()] = ()
    termination_grace_period_seconds: int = 30

    @property
    def container(self) -> ContainerTemplate:
        """Return the one container."""
        return self.containers[0]


class TemplateMeta(Struct, frozen=True):
    """Labels and annotations of every pod of a template."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class PodTemplate(Struct, frozen=True):
    """The pod template of a Deployment or a Job."""

    spec: PodTemplateSpec
    metadata: TemplateMeta = field(default_factory=TemplateMeta)


def read_template(owner: Mapping[str, object]) -> PodTemplate:
    """Return the template of a Deployment or Job; raise if it cannot be run as a process."""
    try:
        return msgspec.convert(owner["spec"]["template"], PodTemplate)  # type: ignore[index]  # as the API has it
    except msgspec.ValidationError as error:
        name = owner["metadata"]["name"]  # type: ignore[index]  # likewise
        raise DescriptionError(f"{owner['kind']} {name} cannot be run as a process: {error}") from error


class PodSandbox(Struct, frozen=True, kw_only=True):
    """A pod on this machine: its name, its folder, and its free ports by declared port."""

    name: str
    namespace: str
    folder: Path
    ports: Mapping[int, int]

    def url(self, container: ContainerTemplate, port: int | str) -> str:
        """Return the URL of a port, by its name or number."""
        declared = {one.name: one.container_port for one in container.ports}
        number = declared.get(port, 0) if isinstance(port, str) else port
        return f"http://{LOOPBACK}:{self.ports.get(number, number)}"


class ProcessPlan(Struct, frozen=True):
    """A process to run: command line, additions to the environment, and files to write before."""

    command: tuple[str, ...]
    environment: dict[str, str]
    files: dict[Path, str]


def plan_process(template: PodTemplate, sandbox: PodSandbox, config_maps: ConfigMaps) -> ProcessPlan:
    """Return the process for a pod of a template in a sandbox."""
    spec, container = template.spec, template.spec.container
    if not container.command:
        raise DescriptionError(f"container {container.name} has no command, and the one of its image is not read")
    environment: dict[str, str] = {}
    for variable in container.env:
        environment[variable.name] = _expand(_value(variable, template, sandbox, config_maps), environment)
    moved = {name: _localize(value, container, sandbox) for name, value in environment.items()}
    words = (_expand(word, environment) for word in (*container.command, *container.args))
    command = tuple(_localize(word, container, sandbox) for word in words)
    files = {path: _localize(text, container, sandbox) for path, text in _files(spec, sandbox, config_maps)}
    return ProcessPlan(command=command, environment=moved, files=files)


def _files(spec: PodTemplateSpec, sandbox: PodSandbox, config_maps: ConfigMaps) -> Iterator[tuple[Path, str]]:
    """Yield the mounted files and their content."""
    sources = {volume.name: volume.config_map.name for volume in spec.volumes}
    for mount in spec.container.volume_mounts:
        for key, text in config_maps[sources[mount.name]].items():
            yield _local_path(sandbox, mount.mount_path) / key, text


def _localize(text: str, container: ContainerTemplate, sandbox: PodSandbox) -> str:
    """Return a text with mounted paths and declared ports replaced by those on this machine."""
    for mount in container.volume_mounts:
        text = re.sub(
            rf"(?<!\w){re.escape(mount.mount_path)}(?![\w.-])", str(_local_path(sandbox, mount.mount_path)), text
        )
    for declared, free in sandbox.ports.items():
        pattern = rf"(?<![\w.\]])(0\.0\.0\.0:|\[::\]:|:)?{declared}(?!\w)"
        text = re.sub(pattern, lambda found, free=free: f"{LOOPBACK}:{free}" if found[1] else str(free), text)  # type: ignore[misc]  # mypy cannot infer a default of a lambda
    return text


def _local_path(sandbox: PodSandbox, mounted: str) -> Path:
    return sandbox.folder / mounted.lstrip("/")


def _expand(text: str, environment: Mapping[str, str]) -> str:
    """Return a text with ``$(NAME)`` expanded as in the API: an unknown name stays, and ``$$`` is a dollar."""
    return _VARIABLE.sub(lambda found: environment.get(found[1], found[0]) if found[1] else "$", text)


def _value(variable: Variable, template: PodTemplate, sandbox: PodSandbox, config_maps: ConfigMaps) -> str:
    source = variable.value_from
    if source is None:
        return variable.value
    if source.config_map_key_ref is not None:
        return config_maps[source.config_map_key_ref.name][source.config_map_key_ref.key]
    if source.field_ref is not None:
        return _of_pod(source.field_ref.field_path, template, sandbox)
    return ""


def _of_pod(path: str, template: PodTemplate, sandbox: PodSandbox) -> str:
    """Return a field of the pod, for a variable with ``fieldRef``."""
    marks = {"metadata.labels": template.metadata.labels, "metadata.annotations": template.metadata.annotations}
    plain = {
        "metadata.name": sandbox.name,
        "metadata.namespace": sandbox.namespace,
        "spec.serviceAccountName": template.spec.service_account_name,
        "status.podIP": LOOPBACK,
        "status.hostIP": LOOPBACK,
    }
    found = _FIELD.fullmatch(path)
    if found is not None and found["key"] and found["path"] in marks:
        return marks[found["path"]].get(found["key"], "")
    if path not in plain:
        raise DescriptionError(f"a process has no field {path}")
    return plain[path]
