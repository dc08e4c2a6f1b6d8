"""A real Kubernetes control plane on loopback, built from source modules, for demo, tests and benchmarks."""
