"""The operator's shell: life cycle, validation, health and templates of groups.

How it works, from an event to a write:

1. **Sources.** Kopf (``handlers``; ``embedding`` runs it in a thread of its own) reports groups and Workloads,
   the reflectors of ``cpg_client`` report pods, nodes and priority classes, and ``sources.sweep`` compares everything
   now and again with the API. All of it goes into one ``ClusterView``, which marks the trees that may have changed.
2. **Queue.** ``work_queue`` holds marked trees until they have been quiet for a moment, so a burst is reconciled once.
3. **Reconcile.** ``reconcile`` builds the context of a tree (``context``) and runs ``steps.STEPS`` over it: pure
   functions, by the rules of ``cpg_api``, from the present state to the writes that it needs.
4. **Writer.** ``writing.writer`` is the only place that writes. The answer goes into the view; where no answer came,
   what was sent is remembered until the watch shows it (``writing.expectations``). A failure marks the tree again.

Beside it, ``admission`` answers the optional webhook from the same view, and ``deletion`` removes our finalizers.

To add behaviour, write a rule in ``cpg_api``, a step that calls it, and its line in ``STEPS``.
"""
