"""What the engine says about a cluster: counterfactuals, simulations, capacity. Nothing here asks a server."""
