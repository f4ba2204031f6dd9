"""The commands of `python -m reports`, one module each: `HELP`, `add_arguments` and `run`."""
