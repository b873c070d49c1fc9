"""What has nothing to do with matrices: files, JSON, progress, option names."""
