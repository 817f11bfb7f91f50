"""What runs inside Triton: loading and running checkpoints. It knows nothing of Triton but `backend`.

The same code serves one million parameters on a laptop and thirteen billion on a GPU. It needs the extra
`models`, and nothing outside this package imports it but benchmarks and tests.
"""
