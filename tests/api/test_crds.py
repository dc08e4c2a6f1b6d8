"""The CustomResourceDefinitions: as generated, and valid for every supported API server."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cpg_api.scheduling.names import GROUP, VERSION

Schema = dict[str, Any]

ROOT = Path(__file__).parents[2]
CRDS = {path.stem.removeprefix(f"{GROUP}_"): path for path in (ROOT / "manifests" / "crds").glob("*.yaml")}
SHORT_NAMES = {"workloads": "cwl", "podgroups": "pg", "compositepodgroups": "cpg"}
FUNCTIONS_OF_1_30 = {"all", "contains", "dyn", "exists", "filter", "getQuery", "has", "indexOf", "join", "map", "size"}
FUNCTIONS_OF_1_30 |= {"split", "url"}
LARGEST_APPLY = 256 * 1024
"""Bytes that `kubectl apply` can keep in an annotation. Larger objects need `--server-side`."""


def crd(plural: str) -> Schema:
    """Load the CRD of a kind."""
    loaded: Schema = yaml.safe_load(CRDS[plural].read_text())
    return loaded


def root_schema(plural: str) -> Schema:
    """Return the schema of a kind."""
    schema: Schema = crd(plural)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def walk_schema(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield every schema inside a schema, with its path."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from walk_schema(inner, f"{path}.{name}")
    if "items" in schema:
        yield from walk_schema(schema["items"], f"{path}[]")


def generate(tools: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the generator."""
    return subprocess.run(  # noqa: S603 - our own script
        [sys.executable, tools / "generate_crds.py", *arguments], capture_output=True, text=True, check=False
    )


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """Copy the generator and the files that it wrote."""
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    shutil.copytree(ROOT / "manifests" / "crds", tmp_path / "manifests" / "crds")
    return tmp_path / "tools"


def test_the_files_match_the_model() -> None:
    """A changed model needs generated files, and the files are never edited by hand."""
    done = generate(ROOT / "tools", "--check")
    assert (done.returncode, done.stdout) == (0, "")


def test_a_difference_is_shown(tools: Path) -> None:
    """The check fails with a diff for an edited file and for one that is not generated."""
    folder = tools.parent / "manifests" / "crds"
    edited = folder / f"{GROUP}_podgroups.yaml"
    edited.write_text(edited.read_text().replace("minimum: 1\n", "minimum: 0\n"))
    (folder / "stray.yaml").write_text("kind: Stray\n")
    done = generate(tools, "--check")
    assert done.returncode == 1
    assert "-                        minimum: 0" in done.stdout
    assert "-kind: Stray" in done.stdout


def test_generating_repairs_a_difference(tools: Path) -> None:
    """After the generator has run, the check passes."""
    lost = tools.parent / "manifests" / "crds" / f"{GROUP}_workloads.yaml"
    lost.unlink()
    assert generate(tools).returncode == 0
    assert lost.read_text() == CRDS["workloads"].read_text()


@pytest.mark.parametrize("plural", SHORT_NAMES)
def test_the_names_match_the_contract(plural: str) -> None:
    """Group, version, scope, status subresource and short name are the ones that users rely on."""
    spec = crd(plural)["spec"]
    (version,) = spec["versions"]
    assert (spec["group"], spec["scope"], spec["names"]["plural"]) == (GROUP, "Namespaced", plural)
    assert (version["name"], version["served"], version["storage"]) == (VERSION, True, True)
    assert version["subresources"] == {"status": {}}
    assert (spec["names"]["shortNames"], spec["names"]["categories"]) == ([SHORT_NAMES[plural]], ["kube-cpg"])


@pytest.mark.parametrize("plural", SHORT_NAMES)
def test_every_field_has_a_description(plural: str) -> None:
    """`kubectl explain` describes every field of every level."""
    silent = [
        f"{path}.{name}"
        for path, schema in walk_schema(root_schema(plural))
        for name, inner in schema.get("properties", {}).items()
        if not inner.get("description") and name != "metadata"
    ]
    assert silent == []


@pytest.mark.parametrize("plural", SHORT_NAMES)
def test_every_list_and_string_of_a_spec_has_a_limit(plural: str) -> None:
    """Without limits the API server assumes the worst case, and refuses the rules for their cost."""
    unlimited = [
        path
        for path, schema in walk_schema(root_schema(plural)["properties"]["spec"])
        if (schema.get("type") == "array" and "maxItems" not in schema and "Must be empty" not in schema["description"])
        or (schema.get("type") == "string" and "maxLength" not in schema and "enum" not in schema)
    ]
    assert unlimited == []


@pytest.mark.parametrize("plural", SHORT_NAMES)
def test_every_list_declares_how_it_merges(plural: str) -> None:
    """Transition rules and server-side apply need keys for the items of a list."""
    lists = [schema for _, schema in walk_schema(root_schema(plural)) if schema.get("type") == "array"]
    assert {schema["x-kubernetes-list-type"] for schema in lists} <= {"map", "atomic"}


def test_unknown_fields_are_kept_only_where_a_rule_refuses_them() -> None:
    """Only what is nested too deeply is kept, so that the refusal can say why."""
    kept = [
        path
        for plural in SHORT_NAMES
        for path, schema in walk_schema(root_schema(plural))
        if schema.get("x-kubernetes-preserve-unknown-fields")
    ]
    assert kept == [".spec" + ".compositePodGroupTemplates[]" * 4]


def test_all_levels_of_a_template_tree_have_the_same_rules() -> None:
    """The unrolled recursion loses no rule."""
    levels, leaves = [], []
    holder = root_schema("workloads")["properties"]["spec"]
    for _ in range(3):
        leaves.append(holder["properties"]["podGroupTemplates"]["items"])
        holder = holder["properties"]["compositePodGroupTemplates"]["items"]
        levels.append(holder)
    leaves.append(holder["properties"]["podGroupTemplates"]["items"])
    assert all(leaf == leaves[0] for leaf in leaves)
    first, second, _ = levels
    assert first["x-kubernetes-validations"] == second["x-kubernetes-validations"]
    plain = [{key: value for key, value in level["properties"].items() if "Templates" not in key} for level in levels]
    assert plain[0] == plain[1] == plain[2]


@pytest.mark.parametrize("plural", SHORT_NAMES)
def test_rules_use_only_functions_of_the_oldest_supported_version(plural: str) -> None:
    """A single unknown function makes an API server refuse the whole definition."""
    used = {
        function
        for _, schema in walk_schema(root_schema(plural))
        for rule in schema.get("x-kubernetes-validations", ())
        for text in (rule["rule"], rule.get("messageExpression", ""))
        for function in re.findall(r"([A-Za-z_]+)\(", re.sub(r"'[^']*'", "''", text))
    }
    assert used - FUNCTIONS_OF_1_30 == set()


@pytest.mark.parametrize("plural", SHORT_NAMES)
def test_definitions_are_small_enough_for_client_side_apply(plural: str) -> None:
    """A plain `kubectl apply -f manifests/crds` works, with a margin."""
    assert len(CRDS[plural].read_bytes()) < LARGEST_APPLY * 3 / 4


@pytest.mark.parametrize("plural", ["podgroups", "compositepodgroups"])
def test_groups_are_pending_by_default(plural: str) -> None:
    """The default status is valid by its own schema: all required fields, and no unknown ones."""
    status = root_schema(plural)["properties"]["status"]
    (condition,) = status["default"]["conditions"]
    item = status["properties"]["conditions"]["items"]
    assert set(item["required"]) <= condition.keys() <= item["properties"].keys()
    assert (condition["status"], condition["reason"]) == ("Unknown", "Pending")
