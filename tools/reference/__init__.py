"""The reference in `docs/reference`, made from the code: one module for each page, each with a function `page`."""
