"""The client of the API server: no other package of kube-cpg speaks HTTP to a cluster."""
