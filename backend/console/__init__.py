"""The console: pages for people, at /app/. A room for each kind of thing that a person looks at, over the doors
(`access`), what surrounds a page (`shell`), errors and charts. No tables of its own."""
