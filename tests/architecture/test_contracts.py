"""The import contracts of pyproject.toml hold, and each of them can fail."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES: list[str] = SETTINGS["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
CONTRACTS = {contract["name"] for contract in SETTINGS["tool"]["importlinter"]["contracts"]}

LAYERS = "Shells depend on engine and client, those on the api model, never back"
SIBLINGS = "No cycles between siblings"
PURITY = "The engine and the api model do no I/O, read no clock, log nothing"
MSGSPEC = "The api model knows no third party but msgspec"
HTTP = "HTTP lives in the client, and for the command line in two modules over the official client"
PYKUBE = "pykube-ng serves the work that is done once, and nothing that runs for long"
MODEL = "Inside the api model, rules use kinds and kinds use plain values"
GROUPS = "Inside the groups' model, rules use trees and trees use kinds"
CLIENT = "Inside the client, processes use informers, informers use requests, requests use sockets"
ENGINE = "Inside the engine, searches use parts and parts use the cluster"
PREEMPTION = "Inside preemption, the plan uses searches and searches use the simulation"
GANGS = "Inside gangs, the search uses parts and parts use the needs"
CEL = "Inside CEL, an expression is read, checked, planned, and then evaluated on values"
DEVICES = "Inside devices, searches see views, and views are of pools for shapes"
OPERATOR = "Inside the operator, handlers feed sources, sources the view, and writes leave by one writer"
SCHEDULER = "Inside the scheduler, the loop uses components, components use the cache, and none calls back"
FILTERS = "Filters are unaware of each other"
COMMANDS = "Inside the command line, commands render analyses, and analyses are of clusters"

VIOLATIONS = [
    (LAYERS, {"api/cpg_api/stray.py": "import cpg_client"}),
    (LAYERS, {"api/cpg_api/stray.py": "import cpg_engine"}),
    (LAYERS, {"scheduler/cpg_engine/stray.py": "import cpg_client"}),
    (LAYERS, {"api/cpg_client/stray.py": "import cpg_engine"}),
    (LAYERS, {"scheduler/cpg_engine/stray.py": "import cpg_scheduler"}),
    (LAYERS, {"scheduler/cpg_scheduler/stray.py": "import cpg_operator"}),
    (LAYERS, {"operator/cpg_operator/stray.py": "import cpg_cli"}),
    (LAYERS, {"lab/cpg_lab/stray.py": "import cpg_cli"}),
    (COMMANDS, {"cli/cpg_cli/stray.py": "'on no layer'"}),
    (COMMANDS, {"cli/cpg_cli/cluster/stray.py": "import cpg_cli.rendering"}),
    (MODEL, {"api/cpg_api/stray.py": "'on no layer'"}),
    (MODEL, {"api/cpg_api/quantity.py": "import cpg_api.core.pod"}),
    (GROUPS, {"api/cpg_api/scheduling/stray.py": "'on no layer'"}),
    (GROUPS, {"api/cpg_api/scheduling/forest.py": "import cpg_api.scheduling.templates"}),
    (CLIENT, {"api/cpg_client/stray.py": "'on no layer'"}),
    (CLIENT, {"api/cpg_client/transport.py": "import cpg_client.connection"}),
    (CLIENT, {"api/cpg_client/patching.py": "import cpg_client.listing"}),
    (ENGINE, {"scheduler/cpg_engine/stray.py": "'on no layer'"}),
    (ENGINE, {"scheduler/cpg_engine/cluster/stray.py": "import cpg_engine.gangs"}),
    (ENGINE, {"scheduler/cpg_engine/scores/stray.py": "import cpg_engine.filters"}),
    (PREEMPTION, {"scheduler/cpg_engine/preemption/victims.py": "import cpg_engine.preemption.reprieve"}),
    (GANGS, {"scheduler/cpg_engine/gangs/needs.py": "import cpg_engine.gangs.search"}),
    (DEVICES, {"scheduler/cpg_engine/devices/stray.py": "'on no layer'"}),
    (DEVICES, {"scheduler/cpg_engine/devices/views.py": "import cpg_engine.devices.search"}),
    (CEL, {"scheduler/cpg_engine/cel/stray.py": "'on no layer'"}),
    (CEL, {"scheduler/cpg_engine/cel/values.py": "import cpg_engine.cel.library"}),
    (OPERATOR, {"operator/cpg_operator/stray.py": "'on no layer'"}),
    (OPERATOR, {"operator/cpg_operator/view/stray.py": "import cpg_operator.writing.writer"}),
    (OPERATOR, {"operator/cpg_operator/sources/stray.py": "import cpg_operator.reconcile"}),
    (SCHEDULER, {"scheduler/cpg_scheduler/stray.py": "'on no layer'"}),
    (SCHEDULER, {"scheduler/cpg_scheduler/binding/binder.py": "import cpg_scheduler.cycle"}),
    (SCHEDULER, {"scheduler/cpg_scheduler/preemption/machine.py": "import cpg_scheduler.status.messages"}),
    (FILTERS, {"scheduler/cpg_engine/filters/node_resources.py": "import cpg_engine.filters.taint_toleration"}),
    (PURITY, {"scheduler/cpg_engine/stray.py": "import time"}),
    (PURITY, {"scheduler/cpg_engine/stray.py": "def now():\n    from time import time\n"}),
    (PURITY, {"api/cpg_api/stray.py": "import logging"}),
    (PURITY, {"api/cpg_api/core/stray.py": "import os.path"}),
    (MSGSPEC, {"api/cpg_api/stray.py": "import numpy"}),
    (HTTP, {"lab/cpg_lab/stray.py": "import aiohttp"}),
    (HTTP, {"scheduler/cpg_scheduler/stray.py": "import http.client"}),
    (HTTP, {"cli/cpg_cli/cluster/stray.py": "import urllib3"}),
    (PYKUBE, {"operator/cpg_operator/stray.py": "import pykube"}),
    (PYKUBE, {"scheduler/cpg_scheduler/stray.py": "from pykube import Pod"}),
    (SIBLINGS, {"api/cpg_api/one.py": "import cpg_api.other", "api/cpg_api/other.py": "import cpg_api.one"}),
    (SIBLINGS, {"api/cpg_api/core/one.py": "import cpg_api.stray", "api/cpg_api/stray.py": "import cpg_api.core.one"}),
]
"""For each contract violations that it has to catch, as lines that are added to a module."""


def verdicts(tree: Path) -> dict[str, str]:
    """Run import-linter over a tree; return KEPT or BROKEN for each contract."""
    search = os.pathsep.join(str(tree / package) for package in sorted({Path(one).parts[0] for one in PACKAGES}))
    run = subprocess.run(  # noqa: S603 - our own tool on our own tree
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": search, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"(?m)^(.+) (KEPT|BROKEN)(?: \(.+\))?$", run.stdout)
    states = {name.strip(): state for name, state in found}
    assert states.keys() == CONTRACTS, run.stdout + run.stderr
    assert run.returncode == ("BROKEN" in states.values())
    return states


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the packages and their contracts."""
    copy = tmp_path_factory.mktemp("tree")
    shutil.copy(ROOT / "pyproject.toml", copy)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def test_the_contracts_hold() -> None:
    """pyproject.toml describes the imports as they are."""
    assert verdicts(ROOT) == dict.fromkeys(CONTRACTS, "KEPT")


@pytest.mark.parametrize(
    ("contract", "modules"), VIOLATIONS, ids=["; ".join(modules.values())[:50] for _, modules in VIOLATIONS]
)
def test_a_contract_catches_its_violation(tree: Path, contract: str, modules: dict[str, str]) -> None:
    """The added import breaks the contract."""
    before = {name: (tree / name).read_text(encoding="utf-8") for name in modules if (tree / name).exists()}
    for name, code in modules.items():
        (tree / name).write_text(f"{before.get(name, '')}\n{code}\n", encoding="utf-8")
    try:
        assert verdicts(tree)[contract] == "BROKEN"
    finally:
        for name in modules:
            (tree / name).unlink()
        for name, text in before.items():
            (tree / name).write_text(text, encoding="utf-8")


def test_the_copy_holds_without_violations(tree: Path) -> None:
    """So the tests above broke it, and restored it afterwards."""
    assert verdicts(tree) == dict.fromkeys(CONTRACTS, "KEPT")


def test_every_contract_has_a_violation() -> None:
    """A new contract needs one that breaks it."""
    assert {contract for contract, _ in VIOLATIONS} == CONTRACTS


def test_the_contracts_cover_every_package() -> None:
    """A new package must be on a layer."""
    names = {Path(package).name for package in PACKAGES}
    settings = SETTINGS["tool"]["importlinter"]
    layers = next(contract["layers"] for contract in settings["contracts"] if contract["type"] == "layers")
    assert set(settings["root_packages"]) == names
    assert {name.strip() for layer in layers for name in layer.split("|")} == names
