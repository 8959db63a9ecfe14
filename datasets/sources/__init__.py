"""Loads data sets, one file for each format. May import `datasets.files`."""
