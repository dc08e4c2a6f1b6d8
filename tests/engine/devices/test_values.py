"""What is taken of a pool."""

from cpg_engine.devices.values import FREE, PoolState, add_amounts


def test_a_device_is_taken_as_a_whole() -> None:
    """Each has a bit."""
    assert FREE.with_taken(2).with_taken(0) == PoolState(taken=0b101)


def test_shares_of_a_device_add_up() -> None:
    """A share of nothing is a share; positions and names are in order."""
    state = FREE.with_share(3, (("a", 1),)).with_share(1, ()).with_share(3, (("b", 2), ("a", 3)))
    assert state == PoolState(consumed=((1, ()), (3, (("a", 4), ("b", 2)))))
    assert add_amounts((("a", 1),), ()) == (("a", 1),)
