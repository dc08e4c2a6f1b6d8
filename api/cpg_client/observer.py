"""Who is told of requests. Called for each of them, so whoever listens had better be quick."""


class RequestObserver:
    """Is told of requests, and does nothing with it."""

    def on_response(self, method: str, status: int, seconds: float) -> None:
        """Hear of the head of an answer, so long after it was asked for; without an answer the status is 0."""

    def on_retry(self, method: str, status: int) -> None:
        """Hear of a request that is about to be sent again, and of the answer that it had."""
