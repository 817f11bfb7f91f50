"""How far the engines that ship agree with people: what they read of annotated answers, and what the
published annotations of FaithScore, VALOR and MHaluBench say of them and of any verifier."""
