"""Examples of encoders: features and images, from files to batches."""
