"""Problems: one sentence about one place."""

from cpg_api.problems import Problem, child_path, quote, truncate


def test_a_problem_prints_path_and_message() -> None:
    """As the API server prints it."""
    assert str(Problem("spec.priority", "It is too high.")) == "spec.priority: It is too high."


def test_a_problem_of_the_object_itself_prints_no_path() -> None:
    """Its path is empty."""
    assert str(Problem("", "It is too large.")) == "It is too large."


def test_equal_problems_are_equal_values() -> None:
    """They can be collected in a set."""
    assert len({Problem("a", "b"), Problem("a", "b"), Problem("a", "c")}) == 2


def test_the_path_of_a_top_level_field_is_its_name() -> None:
    """A path never begins with a dot."""
    assert child_path("", "spec") == "spec"
    assert child_path("spec", "terms") == "spec.terms"


def test_long_texts_are_shortened() -> None:
    """A quoted text fits into a sentence."""
    assert quote("a'b") == '"a\'b"'
    assert quote("x" * 80) == repr("x" * 80)
    assert quote("x" * 81) == repr("x" * 79 + "…")
    assert truncate("x" * 80, 80) == "x" * 80
    assert truncate("x" * 81, 80) == "x" * 79 + "…"
