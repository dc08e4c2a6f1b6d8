"""How long a task may occupy the event loop."""

MAX_SECONDS_PER_TURN = 0.02
"""After this time other tasks run on the loop."""
