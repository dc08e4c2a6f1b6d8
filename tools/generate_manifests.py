"""Write what is made for the chart and from it; ``--check`` only compares.

- In values.schema.json, what the settings files of both processes may hold, as their own code says.
- manifests/install.yaml: the chart with its default values, for those who have no Helm.
- The table of values in the chart's README, from values.yaml, in which the comment above a value says what it is for.
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

import cpg_operator.settings
import cpg_scheduler.settings
from cpg_lab import building
from cpg_lab.errors import LabError

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "kube-cpg"
INSTALL = ROOT / "manifests" / "install.yaml"
README = CHART / "README.md"
SCHEMA = CHART / "values.schema.json"
SPACE = "kube-cpg"
BEGIN, END = "<!-- values: generated -->", "<!-- end of values -->"
HEADER = f"""\
# Generated from charts/kube-cpg by `make generate`. Do not edit. To install without Helm, see
# docs/operations/upgrade.md; the image is one that you have built:
#
#   kubectl create namespace {SPACE}
#   sed "s#image: kube-cpg:#image: YOUR-REGISTRY/kube-cpg:#" manifests/install.yaml | kubectl apply --server-side -f -
"""
_LINE = re.compile(r"(?P<indent> *)(?P<key>[A-Za-z]+):(?: (?P<value>.*))?$")


def main() -> int:
    """Write the files, or compare them; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if a file differs")
    check = parser.parse_args().check
    try:
        expected = {SCHEMA: schema(), INSTALL: HEADER + rendered(), README: readme()}
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
    """Return the schema of the values with the settings as they are now."""
    found: dict[str, Any] = json.loads(SCHEMA.read_text("utf-8"))
    kinds = {"scheduler": cpg_scheduler.settings.Settings, "operator": cpg_operator.settings.Settings}
    tops, parts = msgspec.json.schema_components(
        kinds.values(), ref_template="#/definitions/settings/definitions/{name}"
    )
    found["definitions"]["settings"] = {"definitions": {name: _strict(part) for name, part in sorted(parts.items())}}
    for part, top in zip(kinds, tops, strict=True):
        found["properties"][part]["properties"]["settings"] = top
    return json.dumps(found, indent=2) + "\n"


def _strict(part: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a struct that is given no keys but its own; words about it are for docs/reference."""
    properties = {
        name: {key: value for key, value in one.items() if key != "default"} for name, one in part["properties"].items()
    }
    return {"type": "object", "additionalProperties": False, "properties": properties}


def rendered() -> str:
    """Return the chart with its default values, without its hooks: nobody but Helm knows when they are to be."""
    helm = building.ensure(["helm"])["helm"]
    command = [str(helm), "template", "kube-cpg", str(CHART), "--namespace", SPACE, "--no-hooks"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - built in code
    if done.returncode:
        raise LabError(f"the chart cannot be rendered: {done.stderr.strip()}")
    return done.stdout


def readme() -> str:
    """Return the chart's README with the table of values as it is now."""
    before, _, rest = README.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    table = "\n".join(("| value | default | what it does |", "| --- | --- | --- |", *rows()))
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def rows() -> Iterator[str]:
    """Yield a row for each value that has a comment of its own, or none of whose parents has one."""
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
        now.splitlines(keepends=True), text.splitlines(keepends=True), f"{path} as it is", f"{path} as it should be"
    )


if __name__ == "__main__":
    sys.exit(main())
