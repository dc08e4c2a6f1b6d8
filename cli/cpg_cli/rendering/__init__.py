"""How answers look; nothing here asks a server."""
