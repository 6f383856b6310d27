"""The verification of drafts by the teacher's judgement, with planted controls that show what the judge is worth."""
