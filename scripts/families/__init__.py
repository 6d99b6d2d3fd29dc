"""Tiny random models of each decoder type, made by transformers, and what it computes from them."""
