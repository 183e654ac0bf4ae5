"""Answers of the API server that are no object."""


class ApiProblem(Exception):
    """One line. code: of HTTP, 0 where the server was not reached. reason: of the Status object, or ""."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason

    @property
    def is_gone(self) -> bool:
        """There is no such object."""
        return self.code == 404

    @property
    def is_conflict(self) -> bool:
        """The object exists, or is not the version that was read."""
        return self.code == 409

    @property
    def is_expired(self) -> bool:
        """The version to watch from is too old: list again."""
        return self.code == 410

    @property
    def is_passing(self) -> bool:
        """The same call may succeed later."""
        return self.code in (0, 408, 429) or self.code >= 500
