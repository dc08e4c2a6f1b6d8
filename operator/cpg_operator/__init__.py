"""The operator's shell: life cycle, validation, health and templates of groups."""
