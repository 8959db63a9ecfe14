"""One run: data, process and round loop.

May import `experiments.parts`, `experiments.config`, `experiments.artifacts`
and `experiments.measuring`.
"""
