"""The ground that every step stands on: the held compile and its transactions (`durable`), its budget (`spending`),
the teacher it asks (`teacher_profile`, `teacher_session`, `teacher_calls`), the runner it waits for (`runner_wait`) and
how it ends (`result`)."""
