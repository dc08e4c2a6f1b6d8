"""The one door to an API server: no other package of ours speaks HTTP to a cluster."""
