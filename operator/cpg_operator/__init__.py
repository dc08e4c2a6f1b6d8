"""The operator's shell: life cycle, validation, health and templates of groups.

How it works, from news to write:

1. **News.** Kopf (``main`` registers, ``embedding`` runs it in a thread of its own) tells of groups and Workloads, the
   reflectors of ``cpg_client`` of pods, nodes and priority classes, and ``sweeping`` compares everything now and again
   with what is there. All of it goes into one ``views.View``, which marks the trees concerned.
2. **Queue.** ``dirty.Dirty`` holds marked trees until they have been quiet for a moment, so a burst is one look.
3. **Look.** ``reconciling`` sets the scene of a tree (``scenes``) and runs ``steps.STEPS`` over it: pure functions, by
   the rules of ``cpg_api``, from what is so to what should be written. They may be repeated at any time.
4. **Door.** ``applying.Door`` is the only place that writes. It remembers what it wrote until the watch shows it
   (``expectations``), and what fails marks the tree again.

To add behaviour, write a rule in ``cpg_api``, a step that calls it, and its line in ``STEPS``.
"""
