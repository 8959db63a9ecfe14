"""Many runs: recipes, seeds, and the choice of hyperparameters.

May import `experiments.config`, `experiments.artifacts` and
`experiments.preparing`.
"""
