"""Where a unit can be in the scheduling queue, and the events that bring it there, as metrics name them."""

ACTIVE, BACKOFF, UNSCHEDULABLE, BINDING = "active", "backoff", "unschedulable", "binding"
POPPED = "popped"
"""The place of the unit that is being attempted; metrics do not know it."""
PLACES = (POPPED, ACTIVE, BINDING, BACKOFF, UNSCHEDULABLE)
"""In the order in which their units are attempted."""
CHANGE, HINT, TIMEOUT, FAILURE = "change", "hint", "timeout", "failure"
