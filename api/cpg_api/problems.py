"""Problems of an object, with the place of each.

A problem is a value and not an exception: a reader wants all problems of an object at once, and one bad object must not
stop the work on the others.
"""

from msgspec import Struct


class Problem(Struct, frozen=True, gc=False):
    """One sentence about one place.

    The path is written as the API server writes it: ``spec.tolerations[0].operator``. Where the problem lies between
    two objects, it names an object and its edge.
    """

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def child_path(path: str, name: str) -> str:
    """Return the path of a field; the empty path is the object itself."""
    return f"{path}.{name}" if path else name


def truncate(text: str, limit: int) -> str:
    """Return the text, shortened to the limit."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def quote(text: str, limit: int = 80) -> str:
    """Quote a user's text, shortened so that it fits into a sentence."""
    return repr(truncate(text, limit))
