"""Preflight: what has to hold so that a compile can end, checked before anything is paid. Each file here turns facts
into lines; who collects the facts is `backend.preflight` (rows, runners) and `workers.preflight` (the teacher)."""
