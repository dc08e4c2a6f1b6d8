"""From the structs of ``cpg_api`` to the CustomResourceDefinitions in ``manifests/crds``."""
