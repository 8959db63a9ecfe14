"""A user's tables: a row is an example.

The room may import `datasets.files` and `datasets.sources`.
"""
