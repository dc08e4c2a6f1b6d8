"""Errors of the lab, which the command line prints without a traceback."""


class LabError(Exception):
    """An error that users can act upon; its text is complete without a traceback."""


class ToolchainError(LabError):
    """No Go compiler was found, and none could be fetched."""


class BuildError(LabError):
    """Go could not build a program; the text ends with the end of its output."""


class StartError(LabError):
    """A program of a cluster died, or did not become ready, while the cluster started."""


class StateError(LabError):
    """A named lab cluster is not in the state that the command needs."""


class DescriptionError(LabError):
    """A description of nodes or of a cluster is invalid."""
