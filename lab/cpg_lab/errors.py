"""What can go wrong in the lab, by kind, so that the command line can print it without a traceback."""


class LabError(Exception):
    """Something that the user can act upon; its text is complete and needs no traceback."""


class ToolchainError(LabError):
    """No Go compiler was found, and none could be fetched."""


class BuildError(LabError):
    """Go could not build a program; the text ends with what it printed last."""


class StartError(LabError):
    """A program of a cluster died, or did not become ready, while the cluster started."""


class StateError(LabError):
    """A named lab cluster is not in the state that the command needs."""


class DescriptionError(LabError):
    """A description of nodes, or of a cluster, says something that makes no sense."""
