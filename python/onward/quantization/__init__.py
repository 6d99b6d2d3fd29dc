"""Offline quantisation."""
