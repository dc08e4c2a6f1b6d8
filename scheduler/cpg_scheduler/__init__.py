"""The scheduler's shell: from watch to bind around the engine; it makes no decision of its own."""
