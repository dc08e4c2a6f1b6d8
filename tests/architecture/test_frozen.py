"""Objects of the API model are immutable."""

import importlib
import pkgutil
from dataclasses import is_dataclass

import msgspec

import cpg_api


def classes_of_the_api_model() -> list[type]:
    """Return every class that a module of cpg_api defines."""
    names = [module.name for module in pkgutil.walk_packages(cpg_api.__path__, "cpg_api.")]
    modules = [importlib.import_module(name) for name in names]
    return [found for module in modules for found in vars(module).values() if is_defined_in(found, module.__name__)]


def is_defined_in(found: object, module: str) -> bool:
    """Return whether an object is a class that the module defines itself."""
    return isinstance(found, type) and found.__module__ == module


def is_frozen(found: type) -> bool:
    """Return whether instances of a struct or dataclass are immutable."""
    if issubclass(found, msgspec.Struct):
        return found.__struct_config__.frozen
    return bool(found.__dataclass_params__.frozen)  # type: ignore[attr-defined]


def test_every_struct_of_the_api_model_is_frozen() -> None:
    """A store shares one object with all its readers, so no reader may change it."""
    shared = [one for one in classes_of_the_api_model() if issubclass(one, msgspec.Struct) or is_dataclass(one)]
    assert len(shared) > 50
    assert [found.__qualname__ for found in shared if not is_frozen(found)] == []
