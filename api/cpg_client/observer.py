"""Observe requests. Methods are called for each request, so they must be fast."""


class RequestObserver:
    """An observer that does nothing."""

    def on_response(self, method: str, status: int, seconds: float) -> None:
        """Handle the head of a response, ``seconds`` after its request; the status is 0 where there was none."""

    def on_retry(self, method: str, status: int) -> None:
        """Handle a retry of a request, with the status of the failed attempt."""
