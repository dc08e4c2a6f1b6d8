"""The objects of the cluster, kept up to date by the watches; nothing here sends a request."""
