"""VALOR-Eval and VALOR-Bench: faithfulness and coverage of objects, attributes and relations."""
