"""Which nodes a pod may run on: one predicate per file, all with the semantics of kube-scheduler's.

A *static* filter depends on the pod's class and on the node alone, so its answer is kept until the node changes. A
*dynamic* one depends on the pods that are on the nodes. Filters know nothing of each other; ``registry`` gives their
order, which is also the order in which a node's reason is named.
"""
