"""How far the engines that ship agree with people: what they read of annotated answers, and what the
published annotations of FaithScore and VALOR say of them."""
