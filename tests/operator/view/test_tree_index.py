"""Which Workloads ask for their groups."""

from msgspec.structs import replace

from cpg_api.scheduling.names import INSTANTIATE
from cpg_engine.testing.builders import leaf_template, workload
from cpg_operator.view.tree_index import is_instantiated


def test_only_the_value_true_asks_for_groups() -> None:
    """As for every annotation that switches something on."""
    source = workload([leaf_template("leaf")])
    for value, expected in (("true", True), ("false", False), ("", False)):
        meta = replace(source.metadata, annotations={INSTANTIATE: value})
        assert is_instantiated(replace(source, metadata=meta)) is expected
    assert not is_instantiated(source)
