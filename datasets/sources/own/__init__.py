"""A user's own data: one schema, and a decoder for each format of files.

`rows` has the schema and the checks that hold for all formats. The room may
import `datasets.files` and `datasets.sources`.
"""
