"""Problems: one sentence about one place."""

from cpg_api.problems import Problem, child_path, quote, truncate


def test_problem_reads_as_path_and_message() -> None:
    """A problem prints as the API server prints one: the path, then the sentence."""
    assert str(Problem("spec.priority", "It is too high.")) == "spec.priority: It is too high."


def test_problem_of_the_object_itself_has_no_path() -> None:
    """The empty path stands for the object as a whole and prints nothing."""
    assert str(Problem("", "It is too large.")) == "It is too large."


def test_problems_are_values() -> None:
    """Problems that say the same of the same place are equal and can be collected in a set."""
    assert len({Problem("a", "b"), Problem("a", "b"), Problem("a", "c")}) == 2


def test_child_of_the_object_itself_is_the_bare_name() -> None:
    """A path begins with a name, never with a dot."""
    assert child_path("", "spec") == "spec"
    assert child_path("spec", "terms") == "spec.terms"


def test_long_texts_are_cut() -> None:
    """A quoted text never buries the sentence around it."""
    assert quote("a'b") == '"a\'b"'
    assert quote("x" * 80) == repr("x" * 80)
    assert quote("x" * 81) == repr("x" * 79 + "…")
    assert truncate("x" * 80, 80) == "x" * 80
    assert truncate("x" * 81, 80) == "x" * 79 + "…"
