"""Files: downloaded, written whole, and read without trust in them.

This room imports nothing else of `datasets`.
"""
