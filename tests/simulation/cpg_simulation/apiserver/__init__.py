"""An API server in memory that keeps the promises of Kubernetes on which the scheduler and the operator rely."""
