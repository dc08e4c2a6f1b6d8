"""The diagram in ARCHITECTURE.md has exactly the layers of the import contracts."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
PACKAGES = "packages"
DRAWN = {PACKAGES, "cpg_engine", "cpg_scheduler", "cpg_operator", "cpg_cli"}
"""The containers of layers in the diagram: all but the models and the client."""

MAX_LINES = 200


def drawn() -> dict[str, list[str]]:
    """Return the layers in the diagram, from the top, by the package that contains them."""
    (diagram,) = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    found: dict[str, list[str]] = {}
    package = ""
    for line in diagram.splitlines():
        entry = re.split(r"\s{2,}", line.strip(" │▲▼"))[0].strip()
        if entry.endswith(":"):
            package = entry.removesuffix(":")
        elif package and entry:
            found.setdefault(package, []).append(entry)
    return found


def enforced() -> dict[str, list[str]]:
    """Return the layers of the contracts, of the packages and inside each package."""
    return {
        contract.get("containers", [PACKAGES])[0]: contract["layers"]
        for contract in CONTRACTS
        if contract["type"] == "layers" and "." not in contract.get("containers", [PACKAGES])[0]
    }


def test_the_diagram_has_the_layers_of_the_contracts() -> None:
    """Every layer is drawn in its order, with the modules that do not import each other."""
    assert drawn() == {package: layers for package, layers in enforced().items() if package in DRAWN}


def test_the_tour_is_short() -> None:
    """The reasons are in docs/decisions."""
    assert len(TEXT.splitlines()) < MAX_LINES
