"""A user's own data: one schema, and a decoder for each format of files.

May import `datasets.files` and `datasets.sources`.
"""
