"""Trees of gangs: the units that are scheduled as one, and the recursive search for their placement."""
