"""From decided binds to bound pods."""
