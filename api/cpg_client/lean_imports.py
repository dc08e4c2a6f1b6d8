"""Import libraries without packages that they import where they are installed, and that only ``kubectl cpg`` needs.

structlog imports rich for colored tracebacks: a sixth of the start of the scheduler. Kopf imports the official client
for a login of its own and to recognize its objects: 0.14 s. Our logs are JSON, and the operator has its own login.
"""

import sys
from importlib import import_module


def import_without(module: str, hidden: str) -> None:
    """Import a module as if another were not installed, unless one of the two has been imported already."""
    if hidden in sys.modules or module in sys.modules:
        return
    sys.modules[hidden] = None  # type: ignore[assignment] # an import of it raises ImportError
    try:
        import_module(module)
    finally:
        del sys.modules[hidden]
