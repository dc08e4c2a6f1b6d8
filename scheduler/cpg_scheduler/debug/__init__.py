"""For operators of the scheduler: explanations, dumps, replay."""
