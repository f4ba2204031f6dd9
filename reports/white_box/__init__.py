"""Pictures of single runs: what ran when, what moved TTFT from one scheduler to another, and how batches grew."""
