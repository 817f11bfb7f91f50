"""Retention, and erasure of one subject's data everywhere it lies."""
