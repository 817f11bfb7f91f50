"""Cases of all alerts: when each must fire, and when it must not."""
