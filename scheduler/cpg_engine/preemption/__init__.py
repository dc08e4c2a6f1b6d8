"""Preemption: plans which pods to evict so that a unit of higher priority can be placed. It evicts nothing itself."""
