"""What is wrong with an object, and where.

A problem is a value, never an exception: whoever reads an object wants all of its problems at once, and one
bad object must not stop the work on the others.
"""

from msgspec import Struct


class Problem(Struct, frozen=True, gc=False):
    """One sentence about one place.

    The path is written as the API server writes it, ``spec.tolerations[0].operator``; it may as well name an
    object and its edge, where the problem lies between two objects.
    """

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def child_path(path: str, name: str) -> str:
    """Return the path of a field; below the empty path, which is the object itself, its name alone."""
    return f"{path}.{name}" if path else name


def truncate(text: str, limit: int) -> str:
    """Return a text, or the beginning of one that is too long."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def quote(text: str, limit: int = 80) -> str:
    """Quote what somebody wrote, cut where it would bury the sentence around it."""
    return repr(truncate(text, limit))
