"""CEL selectors of device classes and requests, for the views of devices."""

from cpg_api.core.devices import Device
from cpg_engine.cel.errors import CelError
from cpg_engine.cel.selectors import compile_selector
from cpg_engine.devices.views import SelectorError


def selects(expression: str, driver: str, device: Device) -> bool:
    """Return whether an expression selects a device; raise ``SelectorError`` where it cannot be evaluated."""
    try:
        return compile_selector(expression).matches(driver, device)
    except CelError as error:
        raise SelectorError(str(error)) from error
