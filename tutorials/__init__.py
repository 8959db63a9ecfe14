"""Notebooks, and what makes their cells run in Python 3.11."""
