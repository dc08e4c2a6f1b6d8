"""Workloads and groups, and the rules of group trees.

The structs follow ``scheduling.k8s.io/v1alpha3`` of Kubernetes 1.37 field by field, so that one model serves both
flavours. The description of a field says so where it is an extension of kube-cpg.
"""
