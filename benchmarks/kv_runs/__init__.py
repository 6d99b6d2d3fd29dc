"""The measurements of kv_cache.py: one file for each subcommand, and their common parts."""
