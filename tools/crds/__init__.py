"""Generates the CustomResourceDefinitions in ``manifests/crds`` from the structs of ``cpg_api``."""
