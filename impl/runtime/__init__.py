"""Where host code runs: virtual time (greenlets on SimPy) or real threads in real time."""
