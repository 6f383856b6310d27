"""The documentation's site: docs/ and the reference that is generated from the code, built by mkdocs-material into static
files. `python -m deploy.docs_site` builds it; the web process serves what it finds and needs none of this."""
