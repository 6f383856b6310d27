"""The worker processes: compiles are carried out here, with the database, the teacher and the embedder.

`pipeline` claims a compile and runs its `steps`, one file a step. A step stands on the rooms below it: `candidates` (a
round of them: written, checked, embedded), `drafts` (offered before anything is written), `gap` (what is done where a
slice holds too few distinct candidates), `training` (from labelled inputs to the trial that counts). `step` is what
every step stands on, `teachers` the clients of those they ask. `live` answers the web while somebody waits.
"""
