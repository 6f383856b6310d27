"""Preflight: whether a compile can end, asked before anything is paid. What the lines say is decided in
`backend.domain.planning.preflight`; here are the rows, the runners and the workers that know what they say."""
