"""Measuring and checking: benchmarks, comparison of builds, cache sizes, plots."""
