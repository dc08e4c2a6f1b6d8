"""The values of the chart: each has an effect, and invalid ones are refused."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from cpg_lab import building

CHART = Path(__file__).parents[3] / "charts" / "kube-cpg"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
MISTAKES = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text("utf-8"))
FILES = sorted(Path(__file__).with_name("values").glob("*.yaml"))
Plain = dict[str, Any]
Leaf = tuple[str, ...]
Helm = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.e2e

OTHERWISE: Plain = {
    "affinity": {"nodeAffinity": {}},
    "api": "crd",
    "apiServerPorts": [7],
    "apiServerTo": [{"ipBlock": {"cidr": "10.0.0.7/32"}}],
    "cpu": "7",
    "customIntegrations": [{"group": "x.io", "version": "v1", "kind": "X", "plural": "xs", "template": "template"}],
    "digest": f"sha256:{'7' * 64}",
    "env": [{"name": "X", "value": "x"}],
    "for": "7m",
    "integrations": ["job"],
    "interval": "7s",
    "issuerRef": {"name": "x"},
    "logLevel": "debug",
    "memory": "7Gi",
    "metricRelabelings": [{"regex": "x"}],
    "metricsFrom": [{"podSelector": {}}],
    "namespaces": ["x"],
    "pullPolicy": "Never",
    "pullSecrets": ["x"],
    "relabelings": [{"regex": "x"}],
    "scrapeTimeout": "7s",
    "settings": {"leaderElection": {"leaseDuration": 20}},
    "tolerations": [{"key": "x"}],
    "topologySpreadConstraints": [{"topologyKey": "x"}],
    "value": 7,
}
"""Other values for keys for which the type does not suggest one."""

EVERYTHING = {
    "admissionPolicy": {"enabled": True, "force": True},
    "image": {"repository": "kube-cpg"},
    "networkPolicy": {"enabled": True},
    "webhook": {"enabled": True, "certManager": {"enabled": True}},
    "monitoring": {name: {"enabled": True} for name in ("serviceMonitor", "prometheusRule", "dashboard")}
    | {"force": True},
}
"""Values that others depend on; cert-manager, so that no certificate differs between renders."""


@pytest.fixture(scope="module")
def helm() -> Helm:
    """Return helm."""
    program = building.ensure(["helm"])["helm"]

    def run(*arguments: str, values: Mapping[str, object] | None = None) -> subprocess.CompletedProcess[str]:
        command = [str(program), *arguments, *(() if values is None else ("--values", "-"))]
        text = None if values is None else json.dumps(values)
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False)  # noqa: S603

    return run


def leaves(values: Plain, above: Leaf = ()) -> Iterator[tuple[Leaf, Any]]:
    """Yield every leaf of the values with its path."""
    for key, value in values.items():
        path = (*above, key)
        if isinstance(value, dict) and value:
            yield from leaves(value, path)
        else:
            yield path, value


def another(key: str, value: object) -> object:
    """Return another value of the same kind."""
    if key in OTHERWISE:
        return OTHERWISE[key]
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value}x"
        case _:
            return {"x": "x"}


def changed(path: Leaf, value: object) -> Plain:
    """Return EVERYTHING with one value changed."""
    found: Plain = json.loads(json.dumps(EVERYTHING))
    place = found
    for key in path[:-1]:
        place = place.setdefault(key, {})
    place[path[-1]] = another(path[-1], place.get(path[-1], value))
    return found


def names_of(path: str) -> Iterator[str]:
    """Yield the ways in which a message can name a value: its path in both notations, or an unknown key."""
    yield path
    keys = path.split(".")
    for depth, key in enumerate(keys):
        yield f"at '{''.join(f'/{one}' for one in keys[:depth])}': additional properties '{key}'"
    yield f"at '/{'/'.join(keys)}"


def test_every_value_has_an_effect(helm: Helm) -> None:
    """A change of any single value changes the rendered objects, or is refused with its name."""

    def shown(values: Plain) -> tuple[int, str]:
        done = helm("template", "kube-cpg", str(CHART), values=values)
        return done.returncode, done.stdout or done.stderr

    before = shown(EVERYTHING)
    assert before[0] == 0, before[1]
    all_leaves = list(leaves(VALUES))
    with ThreadPoolExecutor(2) as threads:
        after = list(threads.map(lambda leaf: shown(changed(*leaf)), all_leaves))
    names = [".".join(path) for path, _ in all_leaves]
    assert [name for name, found in zip(names, after, strict=True) if found == before] == []
    wrong = [(name, text) for name, (code, text) in zip(names, after, strict=True) if code and name not in text]
    assert [(name, text) for name, text in wrong if name != "monitoring.force"] == []


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake["why"])
def test_a_mistake_is_refused_with_a_message(helm: Helm, mistake: Plain) -> None:
    """The message is the one in the file and names the value."""
    how = "json" if "json" in mistake else "set"
    option = {"json": "--set-json", "set": "--set"}[how]
    done = helm("template", "kube-cpg", str(CHART), "--set", "image.repository=kube-cpg", option, mistake[how])
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if line.startswith("- ") or "execution error" in line]
    said = [re.sub(r"^(- |Error: execution error at \([^)]*\): )", "", line) for line in lines]
    assert said == mistake["says"].splitlines()
    path = re.split(r"[=\[]", re.split(r"(?<!\\),", mistake[how])[-1])[0]
    assert any(name in said[0] for name in names_of(path))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_helm_lint_finds_nothing(helm: Helm, file: Path) -> None:
    """This includes warnings, for several kinds of installation."""
    done = helm("lint", "--strict", str(CHART), "--values", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
