"""The command line's shell: explains, simulates and shows trees with the same engine as the scheduler."""
