"""Claims of the article as tests; each file holds the claims on one subject."""
