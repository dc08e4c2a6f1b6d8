"""Resolving the priority of a group."""

from cpg_api.scheduling.priority import PriorityClasses
from cpg_engine.testing.builders import priority_class

CLASSES = PriorityClasses(by_name={"high": priority_class("high", 100), "low": priority_class("low", -5)})


def test_an_explicit_priority_wins() -> None:
    """Over a known class and an unknown one."""
    assert (CLASSES.resolve("high", 7), CLASSES.resolve("gone", 7), CLASSES.resolve("", -1)) == (7, 7, -1)


def test_a_class_gives_its_value_and_an_unknown_class_none() -> None:
    """A negative value is valid."""
    assert (CLASSES.resolve("high", None), CLASSES.resolve("low", None), CLASSES.resolve("gone", None)) == (
        100,
        -5,
        None,
    )


def test_without_class_and_default_the_priority_is_zero() -> None:
    """As for pods."""
    assert CLASSES.resolve("", None) == 0


def test_the_lowest_of_several_global_defaults_applies() -> None:
    """The API server resolves pods in the same way."""
    defaults = [priority_class("b", 20, default=True), priority_class("a", 10, default=True)]
    classes = PriorityClasses(by_name={found.metadata.name: found for found in defaults})
    assert classes.resolve("", None) == 10
