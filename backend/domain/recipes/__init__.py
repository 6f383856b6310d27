"""Recipe packs: token runs that a task's answers are known to go on with, drafted for a model that verifies them.

A pack is observed from the teacher's own samples (`observing`), built under a budget of bytes (`building`), written and
read as recipes.json (`pack`), looked up as an answer grows (`lookup`) and grown or thinned out by what serving found
(`merging`). Nothing here knows a tokenizer's library, an engine or a clock.
"""
