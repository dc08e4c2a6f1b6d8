"""Answers for administrators: explanations, dumps, replay."""
