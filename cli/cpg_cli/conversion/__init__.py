"""Turn manifests of other schedulers into ours. Nothing here asks a server."""
