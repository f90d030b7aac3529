"""Encoders: networks over features or images, whose last hidden layer is the vector."""
