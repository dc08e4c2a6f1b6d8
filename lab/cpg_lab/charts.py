"""A Helm chart as plain objects, and a release of it without the objects that create pods."""

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
_POD_CREATORS = {"Deployment", "Job"}
_POLL_SECONDS, _TIMEOUT_SECONDS = 0.02, 30.0
IMAGE = {"repository": "kube-cpg"}
"""An image has to be named, although no simulated node pulls it."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The C loader where PyYAML has it, ten times as fast: the three CRDs have thousands of lines."""


class ChartRelease:
    """A chart installed in a cluster, without its pods; ``cpg_lab.deployments`` runs them as processes."""

    def __init__(
        self,
        access: Access,
        chart: Path,
        values: Mapping[str, object] | None = None,
        *,
        name: str = "kube-cpg",
        namespace: str = "kube-cpg",
    ) -> None:
        """Apply all objects except those that create pods; return once the CRDs are served."""
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
        """Write a kubeconfig with a token of the service account of a part of the release."""
        path = folder / f"{self.namespace}-{part}.kubeconfig"
        token = self._access.token_for(f"{self.name}-{part}", self.namespace)
        write_kubeconfig(path, url=self._access.url, ca_file=self._access.ca_file, token=token)
        return path


async def _apply(access: Access, objects: Sequence[Plain]) -> None:
    """Apply objects one after the other. This takes a tenth of kubectl's time, and many tests wait for it."""
    endpoint = Endpoint(server=access.url, ca=access.ca_file, credentials=Credentials(token=access.token))
    async with Connection(endpoint) as connection:
        for one in objects:
            if one["kind"] not in _POD_CREATORS:
                await connection.patch(_path(one), one, APPLY_YAML, params={"fieldManager": "cpg-lab", "force": "true"})
        for one in objects:
            if one["kind"] == "CustomResourceDefinition":
                async with asyncio.timeout(_TIMEOUT_SECONDS):
                    while not _is_served(await connection.get(_path(one))):  # noqa: ASYNC110  # a server's state
                        await asyncio.sleep(_POLL_SECONDS)


def _is_served(definition: bytes) -> bool:
    conditions = decode(definition).get("status", {}).get("conditions") or ()  # null at first
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def _path(one: Plain) -> str:
    """Return the path of an object in the API; an object without a namespace is cluster-scoped."""
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
    text = _helm_template(chart, json.dumps(chosen), name, namespace)
    return [one for one in yaml.load_all(text, _LOADER) if one]


@functools.cache
def _helm_template(chart: Path, values: str, name: str, namespace: str) -> str:
    helm = building.ensure(["helm"])["helm"]
    command = [str(helm), "template", name, str(chart), "--namespace", namespace, "--skip-tests", "--values", "-"]
    done = subprocess.run(command, input=values, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"the chart {chart} cannot be rendered: {done.stderr.strip()}")
    return done.stdout
