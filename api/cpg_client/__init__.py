"""The client of the API server: no other package of kube-cpg speaks HTTP to a cluster for long."""

from cpg_client.lean_imports import import_without

import_without("structlog", "rich")
