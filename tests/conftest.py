"""What all tests need of the process that they run in."""

import signal


def pytest_configure() -> None:
    """Undo an ignored Ctrl-C: programs started in the background by a shell inherit that, and so would our children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
