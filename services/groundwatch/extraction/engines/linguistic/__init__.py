"""FaithScore's first step without an LLM: a recogniser and a decomposer for the CPU."""
