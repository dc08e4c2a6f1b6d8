"""CEL selectors of device classes and requests, for the views of devices."""

from functools import lru_cache
from typing import TYPE_CHECKING

from cpg_api.core.devices import Device
from cpg_engine.cel.errors import CelError
from cpg_engine.devices.views import SelectorError

if TYPE_CHECKING:
    from cpg_engine.cel.selectors import CompiledSelector


@lru_cache(maxsize=1024)
def _compiled(expression: str) -> "CompiledSelector":
    # The evaluator takes longer to import than the rest of the engine, and most clusters need none.
    from cpg_engine.cel.selectors import compile_selector  # noqa: PLC0415 - see above

    return compile_selector(expression)


def selects(expression: str, driver: str, device: Device) -> bool:
    """Return whether an expression selects a device; raise ``SelectorError`` where it cannot be evaluated."""
    try:
        return _compiled(expression).matches(driver, device)
    except CelError as error:
        raise SelectorError(str(error)) from error
