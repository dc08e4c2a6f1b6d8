"""The text of an endpoint."""

from cpg_client.endpoint import Credentials, Endpoint


def test_secrets_are_not_in_the_text() -> None:
    """An endpoint can be logged: its text has no token and no key."""
    credentials = Credentials(token="sesame", key=b"secret", certificate=b"alice")  # noqa: S106
    shown = repr(Endpoint(server="https://api.test", credentials=credentials))
    assert "https://api.test" in shown
    assert "sesame" not in shown
    assert "secret" not in shown
