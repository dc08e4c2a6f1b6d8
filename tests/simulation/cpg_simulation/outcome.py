"""What came out of a night."""

from msgspec import Struct


class Broken(Struct, frozen=True):
    """A promise that was broken."""

    rule: str
    time: float
    sentence: str


class Outcome(Struct, frozen=True, kw_only=True):
    """The result of one night."""

    seed: int
    number: int = 0
    digest: str
    broken: tuple[Broken, ...] = ()
    steps: int = 0
    requests: int = 0
    writes: int = 0
    binds: int = 0
    seconds: float = 0.0
    """Of CPU."""
    states: dict[str, int] = {}
    """How often each interesting state was reached."""
    story: tuple[str, ...] = ()
    """What happened, in words, if that was asked for."""
