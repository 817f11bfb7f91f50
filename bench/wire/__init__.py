"""NATS' protocol spoken plainly, for what a client library is too slow for or would blur."""
