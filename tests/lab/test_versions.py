"""The tables agree with the Go modules."""

import re

import pytest

from cpg_lab import folders
from cpg_lab.versions import BY_NAME, COMPONENTS, PROGRAMS, Program

pytestmark = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)


def is_ours(program: Program) -> bool:
    """Return whether the program is our own; its version is that of a module that its go.mod requires."""
    return program.package.startswith("kube-cpg.lab/")


def test_the_module_pins_the_version(program: Program) -> None:
    """go.mod requires the version in the table, and go.sum has its hash."""
    folder = folders.module_folder(program.module.name)
    required = re.findall(r"^\s*(?:require )?(\S+) v(\S+)", (folder / "go.mod").read_text(), re.MULTILINE)
    pinned = [version for path, version in required if is_ours(program) or program.package.startswith(path)]
    assert program.version in pinned[: None if is_ours(program) else 1]
    assert f" v{program.version} h1:" in (folder / "go.sum").read_text()


def test_the_module_lists_the_program_as_a_tool(program: Program) -> None:
    """So `go mod tidy` keeps its hashes; or the program is the module itself, and ours."""
    tools = (folders.module_folder(program.module.name) / "go.mod").read_text()
    named = "module " if is_ours(program) else "tool |\t"
    assert re.search(rf"^({named}){re.escape(program.package)}$", tools, re.MULTILINE)


def test_the_linker_sets_the_pinned_version(program: Program) -> None:
    """Where a module sets variables at all."""
    stamps = dict(program.module.stamps)
    if "kubernetes" in program.package:
        assert stamps["k8s.io/component-base/version.gitVersion"] == f"v{program.version}"


def test_the_built_name_is_no_major_version(program: Program) -> None:
    """Go names a program after its package, without a major version at the end."""
    expected = {
        "etcd": "server",
        "kube-apiserver-1.30": "kube-apiserver",
        "kube-controller-manager-1.30": "kube-controller-manager",
        "kube-apiserver-1.34": "kube-apiserver",
        "kube-controller-manager-1.34": "kube-controller-manager",
        "kube-scheduler-1.34": "kube-scheduler",
        "lws": "cmd",
        "trainer": "trainer-controller-manager",
        "ray": "ray-operator",
    }
    assert program.built_name == expected.get(program.name, program.name)


def test_components_are_programs(program: Program) -> None:
    """Every component of a cluster can be built."""
    assert program.name in BY_NAME
    assert {name for table in COMPONENTS.values() for name in table.values()} <= set(BY_NAME)
