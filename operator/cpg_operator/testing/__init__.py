"""What tests of the operator share."""
