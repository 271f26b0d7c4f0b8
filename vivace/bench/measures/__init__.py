"""Single measurements, one idea a file; each yields figures with their raw samples."""
