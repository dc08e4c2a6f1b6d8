"""Read a YAML file of a user, with one error for everything that can be wrong.

PyYAML raises errors of many types for odd scalars. It accepts aliases inside of their own anchor, and aliases of
aliases, by which some bytes stand for billions of values.
"""

from pathlib import Path
from typing import Any

import yaml

MAX_NODES = 100_000
"""Values of a file, those of each alias counted again."""
_ODD_SCALARS = (ValueError, LookupError, AttributeError, TypeError, ArithmeticError)


class YamlFileError(ValueError):
    """A file cannot be read, or is not YAML."""


class _BoundedLoader(yaml.SafeLoader):
    """Counts the values that a document stands for; an alias counts as much as its anchor."""

    def __init__(self, stream: bytes) -> None:
        super().__init__(stream)
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:  # noqa: ANN401 - as PyYAML has it
        node = super().compose_node(parent, index)
        if node is None:
            return None
        if id(node) not in self._sizes:
            if node.end_mark is None:
                raise yaml.MarkedYAMLError(problem="an alias is inside of its own anchor", problem_mark=node.start_mark)
            parts = node.value if isinstance(node.value, list) else ()
            inner = (one for part in parts for one in (part if isinstance(part, tuple) else (part,)))
            self._sizes[id(node)] = 1 + sum(self._sizes[id(one)] for one in inner)
        if self._sizes[id(node)] > MAX_NODES:
            raise yaml.MarkedYAMLError(problem=f"it has more than {MAX_NODES} values", problem_mark=node.start_mark)
        return node


def read_yaml(path: Path) -> Any:  # noqa: ANN401 - plain data
    """Return the content of a file; raise ``YamlFileError`` where it has none."""
    try:
        return yaml.load(path.read_bytes(), _BoundedLoader)  # noqa: S506 - it is a safe loader
    except OSError as error:
        raise YamlFileError(f"cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise YamlFileError(f"not YAML: {error}") from error
    except RecursionError as error:
        raise YamlFileError("not YAML: it is nested too deeply") from error
    except _ODD_SCALARS as error:
        raise YamlFileError(f"not YAML: a value that is not of its tag: {error}") from error
