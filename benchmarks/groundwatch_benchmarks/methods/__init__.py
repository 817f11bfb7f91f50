"""The published methods' benchmarks: their files, their questions, their results.

What they judge by are groundwatch's own protocols, but for AMBER and DASH-B, which live here whole.
"""
