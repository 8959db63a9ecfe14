"""Divides examples: among splits, between the server and clients.

The parts of a partition are seeded draws. May import `datasets.sources`.
"""
