"""Simulations: client data from files, and contexts that run processes."""
