"""The operator's shell: life cycle, validation, health and templates of groups.

How it works, from news to write:

1. **News.** Kopf (``main`` registers, ``embedding`` runs it in a thread of its own) tells of groups and Workloads, the
   reflectors of ``cpg_client`` of pods, nodes and priority classes, and ``sweeping`` compares everything now and again
   with what is there. All of it goes into one ``views.View``, which marks the trees concerned.
2. **Queue.** ``dirty.Dirty`` holds marked trees until they have been quiet for a moment, so a burst is one look.
3. **Look.** ``reconciling`` sets the scene of a tree (``scenes``) and runs ``steps.STEPS`` over it: pure functions, by
   the rules of ``cpg_api``, from what is so to what should be written. They may be repeated at any time.
4. **Door.** ``applying.Door`` is the only place that writes. What is answered goes into the view; where no answer came,
   what was written is remembered until the watch shows it (``expectations``). What fails marks the tree again.

Beside it, ``admission`` answers the optional webhook by the same view, and ``deletion.releasing`` is the way out.

To add behaviour, write a rule in ``cpg_api``, a step that calls it, and its line in ``STEPS``.
"""
