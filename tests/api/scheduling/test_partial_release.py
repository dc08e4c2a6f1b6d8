"""The annotation that releases a partial gang."""

import pytest
from msgspec.structs import replace

from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.partial_release import RELEASE_ANNOTATION, PartialRelease, read_partial_release
from cpg_engine.testing.builders import composite, metadata


def root(text: str | None) -> Group:
    """Return a root with that annotation, or without one."""
    annotations = {} if text is None else {RELEASE_ANNOTATION: text}
    return composite("root", meta=replace(metadata("root"), annotations=annotations))


@pytest.mark.parametrize(
    ("text", "after"),
    [
        (None, None),
        ("default", 600.0),
        ("10m", 600.0),
        ("90s", 90.0),
        ("1h", 3600.0),
        ("1h2m3s", 3723.0),
        ("0s", 0.0),
    ],
)
def test_a_duration_is_parsed(text: str | None, after: float | None) -> None:
    """Without the annotation nothing is ever released."""
    assert read_partial_release(root(text), 600.0) == PartialRelease(after_seconds=after)


@pytest.mark.parametrize("text", ["", "10", "m", "-5m", "1m1h", "1.5h", "true", "9999999s", " 1m"])
def test_a_malformed_duration_is_a_problem(text: str) -> None:
    """A typing error must not cost a workload its pods."""
    found = read_partial_release(root(text), 600.0)
    assert found.after_seconds is None
    assert RELEASE_ANNOTATION in found.problem
