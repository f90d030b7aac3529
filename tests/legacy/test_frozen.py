"""The oracle does not change unnoticed: what parity was proved against stays."""

import hashlib
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "legacy"

# A change here needs a numbered entry in migration/DECISIONS.md that says why.
SHA256 = {
    "__init__.py": "77edd86756fa9f278b0a3c2937386048bf50ee56fcaf7cd4391afe3256f70371",
    "blocks.py": "e92790990c70e77beb1a0d26def5dbab84950b5aa39a4f52737902aa5ce25642",
    "hogwild.py": "e75669b8a6fc3457265d79f84b4d83d770e2b47650a5047d0a2071c192c9a4c2",
    "huffman.py": "8623f2b672b7cf740968e4b9e0aa6fbf4125abc6da9c93b625f6971f7a9273ef",
    "mlp.py": "b50ed7e1f32d23a42cc1eaa1495f7b7d0220d53a028b99087af884dc1513e6b6",
    "mlp_train.py": "a697768590478be8b355db188ca2e4f570ced911b0146b224c087537c32c9fa2",
    "model.py": "c5994089267e1585d9c7bb860f761034cc38df113574f81c5d08c557a027dfb7",
    "network.py": "85a233f59af056779c8c3f4b6a215ac6254d56f165250770e7dfe5610f425a9e",
    "noise.py": "39bf4af9600ad1af32090fb1752dc38e35ed836bceeb0e159daa19960c439ce4",
    "objective.py": "9009104f51dc04c7588d4439720e6b4f9d6c16d07b5d87d6d558b540d81f3231",
    "softmax.py": "169bd4a88fcf629722cda245d110e54fdb6ab56ea2d49a9fd915ac431d850c8e",
    "subwords.py": "c2428f2e3963c28d8797542fc0d281689a2706b2037242efed46df1536079569",
    "trainer.py": "866f100c0974d6373b31bd29a44d202e8f2cd27693462b5f643bf50f71044db8",
    "update.py": "663ce9542121156d97684ea10bece03e3e4820f6f94afbbc5627ffd383168bcd",
    "vocabulary.py": "12f6229394ca4d335f827eff5c26f047bdb1dfc738b8b66539b4c447a3425b16",
}


def digest(path: Path) -> str:
    """Of the text, whatever its line ends."""
    return hashlib.sha256(path.read_text(encoding="utf-8").encode()).hexdigest()


def test_sources_are_the_frozen_ones():
    assert {path.name: digest(path) for path in FOLDER.glob("*.py")} == SHA256
