"""What a tree may be that no search can help."""

from cpg_api.scheduling.forest import GroupKey


class ContradictionError(Exception):
    """Members that run already contradict what their tree asks for."""

    def __init__(self, key: GroupKey, detail: str) -> None:
        """Keep the group at which it shows."""
        super().__init__(f"{key}: {detail}")
        self.key = key
        self.detail = detail
