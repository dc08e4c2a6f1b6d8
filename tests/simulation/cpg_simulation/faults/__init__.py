"""What fails in a night."""
