"""Where events come from: Kopf, our reflectors, and the sweep."""
