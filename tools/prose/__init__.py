"""The words of this project's prose: what counts as prose, which words obscure it, and where they stand."""
