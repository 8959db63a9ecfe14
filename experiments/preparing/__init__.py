"""Puts a run together before it begins: data, clients, network and process.

`building` begins; it asks `data` for the data, and `cohort` who takes part.

May import `experiments.parts`, `experiments.config` and
`experiments.artifacts`.
"""
