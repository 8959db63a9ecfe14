"""Data and their partitions; a refusal is a ValueError with its remedy."""
