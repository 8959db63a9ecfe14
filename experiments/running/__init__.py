"""One run: round loop, checkpoints and results.

May import `experiments.parts`, `experiments.config`, `experiments.artifacts`,
`experiments.measuring` and `experiments.preparing`.
"""
