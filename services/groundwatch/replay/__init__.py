"""Replays: a stretch of what was recorded, judged again into a run of its own."""
