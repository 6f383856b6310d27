"""The ground that every step stands on: the held compile and its transactions (`durable`), its budget (`spending`),
the teacher it asks (`teacher_profile`, `teacher_session`, `teacher_calls`), live or in a vendor's batches
(`batch_planning`, `batch_settling`, `batch_wait`), the runner it waits for (`runner_wait`) and how it ends
(`result`)."""
