"""A campaign of faults against a whole system, from outside: real processes, real sockets, a known truth.

`run.campaign` starts everything, lets clients send, lets faults happen, and then says what became of every
single response. `python -m bench faults` runs it for minutes, `tests/faults/test_campaign.py` for seconds.
"""
