"""Measures a run: accuracy, clients, pseudo-labels, diversity, privacy.

May import `experiments.parts`, `experiments.config` and
`experiments.artifacts`.
"""
