"""Where forwards run: the virtual device, CPU worker threads, or a CUDA GPU."""
