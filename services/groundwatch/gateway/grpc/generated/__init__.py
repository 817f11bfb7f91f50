"""Made from proto/groundwatch/v1 by proto/generate.py; never edited."""
