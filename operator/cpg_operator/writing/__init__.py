"""Every write of the operator: in order for each object, retried with a back-off, remembered until it is seen."""
