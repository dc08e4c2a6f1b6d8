"""Scores: how good a node is for a pod, one score per file, each from 0 to 100 and weighted by ``registry``."""
