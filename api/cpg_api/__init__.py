"""The typed model of every object that kube-cpg reads and writes, and the rules of group trees.

The package imports the standard library and msgspec only: no I/O, no clock, no logging. Both flavours of the API (ours
and the built-in ``scheduling.k8s.io``) decode into the same structs.
"""
