"""Runner processes and the `kolm` command: they hold no database, broker or web framework. Of the backend they import
`backend.domain` alone."""
