"""Is this commit slower, and how sure are we? Reads benchmark JSON, compares, gates, and shows a metric's history."""
