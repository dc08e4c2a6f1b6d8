"""What tests of the operator stand on."""
