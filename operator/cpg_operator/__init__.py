"""The operator: life cycle, validation, health and templates of groups, on Kopf.

The path from an event to a write:

1. **Handlers.** ``handlers`` registers with Kopf. ``on.startup`` takes the lease and reads the cluster
   (``operator_run``), ``on.event`` takes groups and Workloads, and ``on.cleanup`` sends what is pending.
2. **Sources.** ``sources`` takes Kopf's events, those of our own reflectors for pods, nodes and priority classes, and
   the findings of a regular sweep.
3. **View.** ``view`` is what is known. A change adds the trees that it concerns to the ``work_queue``, which holds them
   until they have been quiet for a moment, so a burst is reconciled once.
4. **Reconcile.** ``reconcile`` builds the ``context`` of a tree and runs ``steps.STEPS`` over it: pure functions, by
   the rules of ``cpg_api``, from the present state to the writes that it needs.
5. **Writer.** ``writing.writer`` is the only place that writes. The answer goes into the view; without an answer, what
   was sent is remembered until the watch shows it. After a failure the tree is reconciled again.

``components`` connects these parts. ``admission`` answers the optional webhook from the same view, and ``deletion``
removes our finalizers where the operator is uninstalled.

To add behaviour, write a rule in ``cpg_api``, a step that calls it, and its line in ``STEPS``.
"""
