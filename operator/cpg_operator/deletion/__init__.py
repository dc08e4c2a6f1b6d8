"""Protection: no group goes before what is below it has gone, and no finalizer is left behind."""
