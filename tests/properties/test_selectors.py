"""What a selector caches by is all that its results depend on."""

import msgspec
import pytest
from tests.e2e.differential.cel_cases import Generator

from cpg_api.core.devices import Device
from cpg_engine.cel import selectors
from cpg_engine.cel.errors import CelError
from cpg_engine.cel.reads import Reads
from cpg_engine.cel.selectors import CompiledSelector


def results(expression: str, devices: list[tuple[str, Device]]) -> list[object]:
    """Return what one selector says of the devices; of an error, its kind."""
    selector = CompiledSelector(expression)
    found: list[object] = []
    for driver, device in devices:
        try:
            found.append(selector.matches(driver, device))
        except CelError as error:
            found.append(type(error))
    return found


def test_what_is_read_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are the same as if the whole device was read."""
    generator = Generator(7)
    cases = [generator.case() for _ in range(1000)]
    devices = [(case.driver, msgspec.convert(case.device, Device)) for case in cases[:20]]
    found = {}
    for expression in {case.expression for case in cases if "device." in case.expression}:
        try:
            found[expression] = results(expression, devices)
        except CelError:
            continue
    monkeypatch.setattr(selectors, "find_reads", lambda _: Reads(frozenset(), is_everything=True))
    assert len(found) > 200
    assert found == {expression: results(expression, devices) for expression in found}
