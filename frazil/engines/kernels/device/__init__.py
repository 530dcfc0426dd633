"""What kernels share."""
