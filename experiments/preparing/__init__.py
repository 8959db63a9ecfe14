"""Puts a run together before it begins: data, clients, network and process.

May import `experiments.parts`, `experiments.config` and
`experiments.artifacts`.
"""
