"""Trees of gangs: what they are to the engine, and the recursive search for their places."""
