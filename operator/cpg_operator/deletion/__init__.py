"""The command that removes our finalizers from every group, for a cluster without the operator."""
