"""CEL expressions about devices, as Kubernetes evaluates them."""
