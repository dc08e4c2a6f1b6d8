"""The commands, one module each: they read the arguments, ask ``cluster``, and write with ``rendering``."""
