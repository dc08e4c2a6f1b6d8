"""Every write of the operator: sent in order for each object, retried with a back-off, remembered until seen."""
