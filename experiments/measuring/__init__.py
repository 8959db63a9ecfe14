"""What is measured of a run: accuracy, proxy task, pseudo-labels, diversity.

May import `experiments.parts`, `experiments.config` and
`experiments.artifacts`.
"""
