"""Many runs: recipes, seeds, and the choice of hyperparameters.

May import `experiments.config`, `experiments.artifacts`,
`experiments.preparing` and `experiments.running`.
"""
