"""Filters: which nodes a pod may run on, one predicate per file, with the semantics of kube-scheduler's plugin.

A *static* filter depends on the pod's class and on the node alone, so its result is kept until the node changes. A
*dynamic* filter depends on the pods that are on the nodes. Filters do not import each other; ``registry`` has their
order, which is also the order in which the reason of a rejected node is chosen.
"""
