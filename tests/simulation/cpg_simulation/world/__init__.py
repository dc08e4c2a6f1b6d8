"""All that is not ours: users, controllers of pods, kubelets, the garbage collector, and another scheduler.

Each is simple, and right in the end: it reads the state of the API server now and then, and does what is missing.
"""
