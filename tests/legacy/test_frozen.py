"""The oracle does not change unnoticed: what parity was proved against stays."""

import hashlib
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "legacy"

# A change here needs a numbered entry in migration/DECISIONS.md that says why.
SHA256 = {
    "__init__.py": "77edd86756fa9f278b0a3c2937386048bf50ee56fcaf7cd4391afe3256f70371",
    "blocks.py": "e92790990c70e77beb1a0d26def5dbab84950b5aa39a4f52737902aa5ce25642",
    "hogwild.py": "c335c093fdfa98df5471cf48630b0008bd59987268dec324da7d07626d616193",
    "mlp.py": "b50ed7e1f32d23a42cc1eaa1495f7b7d0220d53a028b99087af884dc1513e6b6",
    "mlp_train.py": "6bbda97e17fec216bca158e5a4a0df004360031be8b9814f3a1de13262c3a99b",
    "model.py": "a9240e21ac75ad23e1620201105c4874c68abd3d4cd2e1d06215bf087d772bcc",
    "network.py": "85a233f59af056779c8c3f4b6a215ac6254d56f165250770e7dfe5610f425a9e",
    "noise.py": "39bf4af9600ad1af32090fb1752dc38e35ed836bceeb0e159daa19960c439ce4",
    "objective.py": "44e7755777e673c1c65594c34c74d7b9258a3ead633a99a0ccf61550325a19be",
    "trainer.py": "9aa087601255bbd84e486ce80d505419f4ab6c744665a5115b9575bacc2ce7b0",
    "update.py": "20bbd8ffa2093e02bfd4dff6b86f90990046ec2028f68bb5c6e9cfb9778db4fe",
    "vocabulary.py": "782cc41a45c1c45ef34c5a2e7aacb9be26a72ca65ec4bb61d1493716a7bf890b",
}


def digest(path: Path) -> str:
    """Of the text, whatever its line ends."""
    return hashlib.sha256(path.read_text(encoding="utf-8").encode()).hexdigest()


def test_sources_are_the_frozen_ones():
    assert {path.name: digest(path) for path in FOLDER.glob("*.py")} == SHA256
