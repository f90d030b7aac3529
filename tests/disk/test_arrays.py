"""Strings as arrays. tests/inputs and tests/vectors read damaged arrays."""

from embedder.disk.arrays import pack_strings, unpack_strings


def test_strings_survive_packing():
    strings = ["a b", "", "\u00e4\u4e2d", "c"]
    assert unpack_strings(*pack_strings(strings)) == strings
