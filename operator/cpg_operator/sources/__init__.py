"""Where events come from: Kopf, reflectors and the sweep."""
