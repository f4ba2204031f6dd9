"""Everything a scheduler is and runs on: data, batching, schedulers, runtimes, devices, timeline, metrics."""
