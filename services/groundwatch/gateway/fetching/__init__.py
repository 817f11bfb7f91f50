"""Fetching what a response names by its address: from an allow-list only, and bounded in every way."""
