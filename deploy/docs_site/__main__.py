"""Builds the site into build/docs-site: `python -m deploy.docs_site`."""

import sys

from deploy.docs_site.building import main

if __name__ == "__main__":
    sys.exit(main())
