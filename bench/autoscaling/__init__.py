"""The parts of `autoscale`: traffic, the line of stages, the scaler's rules, and the server it reads."""
