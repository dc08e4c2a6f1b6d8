"""Workloads and groups, and the rules of group trees.

The structs follow ``scheduling.k8s.io/v1alpha3`` of Kubernetes 1.37 field by field, so that one model serves
both flavours; fields that are ours alone say so in their description.
"""
