"""Encoders: networks over features or images, whose embedding is the vector."""
