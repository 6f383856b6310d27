"""Rules: a high-precision decision list that answers before any model when it is sure, and says nothing otherwise.

Induced from accepted pairs (`induction`), written and read as rules.json (`rule_list`), compiled to one closure in
Python (`closure`) and exported as one function in JavaScript (`javascript`). No code comes out of an artifact.
"""
