"""The needs of every step: how it ends (`result`), the teacher it asks (`teacher_session`), the runner it waits for
(`runner_wait`)."""
