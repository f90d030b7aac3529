"""What lies on disk: files whole or not there, sums of them, who may write."""
