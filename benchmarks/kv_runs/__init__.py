"""What kv_cache.py measures: a file for each of its subcommands, and what they have in common."""
