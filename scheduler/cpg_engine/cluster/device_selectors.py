"""CEL selectors of device classes and requests, for the views of devices."""

from cpg_api.core.devices import Device
from cpg_engine.cel.errors import CelError
from cpg_engine.devices.views import SelectorError


def selects(expression: str, driver: str, device: Device) -> bool:
    """Return whether an expression selects a device; raise ``SelectorError`` where it cannot be evaluated."""
    # The evaluator takes longer to import than the rest of the engine, and most clusters need none.
    from cpg_engine.cel.selectors import compile_selector  # noqa: PLC0415 - see above

    try:
        return compile_selector(expression).matches(driver, device)
    except CelError as error:
        raise SelectorError(str(error)) from error
