"""The typed model of everything kube-cpg reads and writes, and the rules of group trees.

Standard library and msgspec only: no I/O, no clock, no logging. Both flavours of the API (ours and
the built-in ``scheduling.k8s.io``) decode into the same structs.
"""
