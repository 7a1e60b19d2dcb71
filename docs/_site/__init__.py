"""What the site's pages are made with: pages that are written from the code, and small extensions of Sphinx."""
