"""The documentation's site: docs/ and the reference that is generated from the code, built by mkdocs-material into
static files. `python -m deploy.docs_site` builds it; the web process serves the files and needs none of this."""
