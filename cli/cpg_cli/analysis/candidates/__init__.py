"""Changes after which a unit could fit, one source per file; each is checked by the engine before it is shown."""
