"""What an endpoint shows of itself."""

from cpg_client.endpoint import Credentials, Endpoint


def test_secrets_are_not_shown() -> None:
    """An endpoint can be logged: no token and no key is in its text."""
    credentials = Credentials(token="sesame", key=b"secret", certificate=b"alice")  # noqa: S106
    shown = repr(Endpoint(server="https://api.test", credentials=credentials))
    assert "https://api.test" in shown
    assert "sesame" not in shown
    assert "secret" not in shown
