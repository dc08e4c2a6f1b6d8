"""What the scheduler knows of the cluster, kept up to date by the watches; nothing here talks to anybody."""
