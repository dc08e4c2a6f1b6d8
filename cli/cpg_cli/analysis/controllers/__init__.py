"""What the controllers of workloads create, one module per project: pure functions of their objects."""
