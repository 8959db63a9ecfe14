"""Downloads files, writes them atomically, and reads files of users safely.

This room imports nothing else of `datasets`.
"""
