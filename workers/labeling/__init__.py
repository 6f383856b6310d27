"""Labels: the teacher asked about picks, and its votes."""
