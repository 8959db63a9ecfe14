"""Objectives that add something to another objective's loss."""
