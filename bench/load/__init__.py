"""Load that is made beforehand, for what real judges are too slow for."""
