"""The history: every outcome with its judgements as Parquet, in a folder or an object store."""
