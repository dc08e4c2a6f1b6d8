"""A Helm chart as plain objects, and their way into a cluster without anything that would make pods there."""

import asyncio
import functools
import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from cpg_api.decoding import decode
from cpg_client.connection import APPLY_YAML, Connection
from cpg_client.endpoint import Credentials, Endpoint
from cpg_lab import building, probing
from cpg_lab.access import Access, write_kubeconfig
from cpg_lab.errors import LabError

Plain = dict[str, Any]
_MAKE_PODS = {"Deployment", "Job"}
_POLL, _PATIENCE = 0.02, 30.0
IMAGE = {"repository": "kube-cpg"}
"""An image has to be named, although no simulated node pulls it."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""In C where it is there, ten times as fast: three kinds are thousands of lines."""


class ChartRelease:
    """A chart in a cluster, without its pods; ``deployments`` runs them as processes."""

    def __init__(
        self,
        access: Access,
        chart: Path,
        values: Mapping[str, object] | None = None,
        *,
        name: str = "kube-cpg",
        namespace: str = "kube-cpg",
    ) -> None:
        """Apply everything but what would make pods; return once its kinds are served."""
        self.namespace = namespace
        self.name = name
        self._access = access
        self.objects = render(chart, values, name=name, namespace=namespace)
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        probing.run_blocking(_apply(access, [space, *self.objects]))

    @property
    def deployments(self) -> list[Plain]:
        """The Deployments."""
        return self.of_kind("Deployment")

    def of_kind(self, kind: str) -> list[Plain]:
        """Return the objects of a kind."""
        return [one for one in self.objects if one["kind"] == kind]

    def kubeconfig(self, part: str, folder: Path) -> Path:
        """Write a kubeconfig with a token of a process's account, for whoever acts in its place."""
        path = folder / f"{self.namespace}-{part}.kubeconfig"
        token = self._access.token_for(f"{self.name}-{part}", self.namespace)
        write_kubeconfig(path, url=self._access.url, ca_file=self._access.ca_file, token=token)
        return path


async def _apply(access: Access, objects: Sequence[Plain]) -> None:
    """Bring objects in, one after the other; a tenth of the time that kubectl takes, which many a test waits for."""
    endpoint = Endpoint(server=access.url, ca=access.ca_file, credentials=Credentials(token=access.token))
    async with Connection(endpoint) as connection:
        for one in objects:
            if one["kind"] not in _MAKE_PODS:
                await connection.patch(_path(one), one, APPLY_YAML, params={"fieldManager": "cpg-lab", "force": "true"})
        for one in objects:
            if one["kind"] == "CustomResourceDefinition":
                async with asyncio.timeout(_PATIENCE):
                    while not _is_served(await connection.get(_path(one))):  # noqa: ASYNC110  # a server's state
                        await asyncio.sleep(_POLL)


def _is_served(definition: bytes) -> bool:
    conditions = decode(definition).get("status", {}).get("conditions") or ()  # null at first
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def _path(one: Plain) -> str:
    """Return where an object is; with a namespace of its own it is in that one, else in none."""
    api = f"apis/{one['apiVersion']}" if "/" in one["apiVersion"] else f"api/{one['apiVersion']}"
    namespace = one["metadata"].get("namespace")
    kind = one["kind"].lower()
    plural = re.sub("ys$", "ies", f"{kind}es" if kind.endswith("s") else f"{kind}s")
    return f"/{api}/{f'namespaces/{namespace}/' if namespace else ''}{plural}/{one['metadata']['name']}"


def render(
    chart: Path, values: Mapping[str, object] | None = None, *, name: str = "kube-cpg", namespace: str = "kube-cpg"
) -> list[Plain]:
    """Return all objects of a chart, those of its hooks included, in the order in which Helm installs them."""
    chosen = dict(values or {})
    image = chosen.get("image", {})
    chosen["image"] = IMAGE | image if isinstance(image, dict) else image
    text = _rendered(chart, json.dumps(chosen), name, namespace)
    return [one for one in yaml.load_all(text, _LOADER) if one]


@functools.cache
def _rendered(chart: Path, values: str, name: str, namespace: str) -> str:
    helm = building.ensure(["helm"])["helm"]
    command = [str(helm), "template", name, str(chart), "--namespace", namespace, "--skip-tests", "--values", "-"]
    done = subprocess.run(command, input=values, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"the chart {chart} cannot be rendered: {done.stderr.strip()}")
    return done.stdout
