"""Loads data sets: one file for each format.

A source gives images, their labels, and the owners of the images if they are
known. May import `datasets.files`.
"""
