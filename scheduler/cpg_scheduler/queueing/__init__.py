"""Units without a node: which one is next, which ones back off, which events requeue them."""
