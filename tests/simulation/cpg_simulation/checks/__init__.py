"""The invariants of the simulator: what has to hold after every write, and what has to hold at the end of a night."""
