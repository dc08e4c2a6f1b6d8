"""Where the objects come from: an API server, files, a dump."""
