"""Measures a run: accuracy, clients, validation, proxy task, pseudo-labels.

May import `experiments.parts`, `experiments.config` and
`experiments.artifacts`.
"""
