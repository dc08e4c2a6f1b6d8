"""What a search raises when a tree cannot be searched for."""

from cpg_engine.verdicts import Contradiction


class ContradictionError(Exception):
    """Running members contradict the required topology of their tree."""

    def __init__(self, contradiction: Contradiction) -> None:
        """Carry the contradiction."""
        super().__init__(contradiction)
        self.contradiction = contradiction
