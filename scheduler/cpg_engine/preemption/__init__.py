"""Who has to go so that a more important tree can come: plans, never deeds."""
