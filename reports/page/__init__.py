"""One self-contained HTML page of a run: claims, the article's table, charts, and the comparison with a base."""
