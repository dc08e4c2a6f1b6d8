"""Generate the files around the chart; ``--check`` only compares.

- values.schema.json: the schema of both settings files, from the structs that read them.
- manifests/install.yaml: the chart with its default values, for an installation without Helm.
- The table of values in the chart's README, from values.yaml and the comments in it.
- The alerts in docs/operations/monitoring.md, from files/alerts.yaml.
"""

import argparse
import difflib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

import cpg_operator.settings
import cpg_scheduler.settings
from cpg_lab import building
from cpg_lab.errors import LabError

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "kube-cpg"
INSTALL = ROOT / "manifests" / "install.yaml"
README = CHART / "README.md"
MONITORING = ROOT / "docs" / "operations" / "monitoring.md"
SCHEMA = CHART / "values.schema.json"
SPACE = "kube-cpg"
REGISTRY = "YOUR-REGISTRY"
"""Stands in install.yaml for the registry of the user; no image has this name, since it is not in lower case."""
HEADER = f"""\
# Generated from charts/kube-cpg by `make generate`. Do not edit. To install without Helm, see
# docs/operations/upgrade.md; put the registry of the image that you built in the place of {REGISTRY}:
#
#   kubectl create namespace {SPACE}
#   sed "s#{REGISTRY}#registry.example.com/team#" manifests/install.yaml | kubectl apply --server-side -f -
"""
_LINE = re.compile(r"(?P<indent> *)(?P<key>[A-Za-z]+):(?: (?P<value>.*))?$")


def main() -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file differs")
    check = parser.parse_args().check
    try:
        expected = {SCHEMA: schema(), INSTALL: HEADER + rendered(), README: readme(), MONITORING: monitoring()}
    except LabError as error:
        print(f"generate_manifests: {error}", file=sys.stderr)
        return 1
    differences = [line for path, text in expected.items() for line in _difference(path, text)]
    if check:
        sys.stdout.writelines(differences)
        return bool(differences)
    for path, text in expected.items():
        path.write_text(text, "utf-8")
    return 0


def schema() -> str:
    """Return the schema of the values with the current settings."""
    found: dict[str, Any] = json.loads(SCHEMA.read_text("utf-8"))
    kinds = {"scheduler": cpg_scheduler.settings.SchedulerSettings, "operator": cpg_operator.settings.Settings}
    tops, parts = msgspec.json.schema_components(
        kinds.values(), ref_template="#/definitions/settings/definitions/{name}"
    )
    found["definitions"]["settings"] = {"definitions": {name: _strict(part) for name, part in sorted(parts.items())}}
    for part, top in zip(kinds, tops, strict=True):
        found["properties"][part]["properties"]["settings"] = top
    return json.dumps(found, indent=2) + "\n"


def _strict(part: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a struct without unknown keys; descriptions are in docs/reference."""
    properties = {
        name: {key: value for key, value in one.items() if key != "default"} for name, one in part["properties"].items()
    }
    required = {key: part[key] for key in ("required",) if part.get(key)}
    return {"type": "object", "additionalProperties": False, "properties": properties, **required}


def rendered() -> str:
    """Return the chart with its default values and without its hooks, which only Helm can run."""
    helm = building.ensure(["helm"])["helm"]
    command = [str(helm), "template", "kube-cpg", str(CHART), "--namespace", SPACE, "--no-hooks"]
    command += ["--set", f"image.repository={REGISTRY}/kube-cpg"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - built in code
    if done.returncode:
        raise LabError(f"the chart cannot be rendered: {done.stderr.strip()}")
    return done.stdout


def readme() -> str:
    """Return the chart's README with the current table of values."""
    return _filled(README, "values", "\n".join(("| value | default | what it does |", "| --- | --- | --- |", *rows())))


def monitoring() -> str:
    """Return the page about monitoring with the current alerts and runbooks."""
    alerts = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text("utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))["monitoring"]["prometheusRule"]["alerts"]
    return _filled(MONITORING, "alerts", "\n".join(_runbook(name, one, values[name]) for name, one in alerts.items()))


def _runbook(name: str, alert: dict[str, str], chosen: dict[str, Any]) -> str:
    text = alert["runbook"].replace("NAMESPACE", SPACE).replace("RELEASE", SPACE)
    return f"### {name}\n\n`{chosen['severity']}`, `for: {chosen['for']}`. {alert['summary']}\n\n{text}"


def _filled(path: Path, what: str, generated: str) -> str:
    """Return a document with new text between its markers."""
    begin, end = f"<!-- {what}: generated -->", f"<!-- end of {what} -->"
    before, _, rest = path.read_text("utf-8").partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n\n{generated.rstrip()}\n\n{end}{after}"


def rows() -> Iterator[str]:
    """Yield a row for each value, and for each section with a comment."""
    path: list[str] = []
    comment: list[str] = []
    for line in (CHART / "values.yaml").read_text("utf-8").splitlines():
        if line.lstrip().startswith("#"):
            comment.append(line.strip(" #"))
            continue
        found = _LINE.match(line)
        if found is not None:
            path = [*path[: len(found["indent"]) // 2], found["key"]]
            if found["value"] is not None:
                yield f"| `{'.'.join(path)}` | `{found['value']}` | {' '.join(comment)} |"
            elif comment:
                yield f"| `{'.'.join(path)}` | | {' '.join(comment)} |"
        comment = []


def _difference(path: Path, text: str) -> Iterator[str]:
    now = path.read_text("utf-8") if path.exists() else ""
    yield from difflib.unified_diff(
        now.splitlines(keepends=True), text.splitlines(keepends=True), f"{path} (current)", f"{path} (expected)"
    )


if __name__ == "__main__":
    sys.exit(main())
