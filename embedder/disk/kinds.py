"""Kinds of files that are told by the endings of their names."""

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
"""Endings of the names of image files, in lower case."""


def is_image_name(name: str) -> bool:
    """Whether a file of this name is an image that is not hidden, as `._a.png` is."""
    return name.lower().endswith(IMAGES) and not name.rpartition("/")[2].startswith(".")
