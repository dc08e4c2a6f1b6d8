"""Workload kinds of other projects: which group each of their pods belongs to, and which tree each owner gets.

Each kind has a module: the rule that derives the group of a pod, the fields of the owner that matter, and the templates
of its Workload. ``policy`` reads the annotations of owners.
"""
