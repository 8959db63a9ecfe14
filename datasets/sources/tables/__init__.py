"""Sources that read a user's tables: a row is an example."""
