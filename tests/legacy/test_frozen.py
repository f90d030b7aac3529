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
    "model.py": "05618dfb4a27b7e3d5e6f13bc1405a2d67395b6be070d6ffa0dac4c87c278ba8",
    "network.py": "85a233f59af056779c8c3f4b6a215ac6254d56f165250770e7dfe5610f425a9e",
    "noise.py": "39bf4af9600ad1af32090fb1752dc38e35ed836bceeb0e159daa19960c439ce4",
    "objective.py": "7f3977101dc6961c1728c0d95f964442c8aca84943f433fd19cf35f8e0c51ead",
    "softmax.py": "159927be62fb87febbb7468b4e8da792270acd4651956dd5672f089b7f4f0db8",
    "subwords.py": "c2428f2e3963c28d8797542fc0d281689a2706b2037242efed46df1536079569",
    "trainer.py": "d7a447f8d5cda357fb39aa62ae38ee93501c0d853fce709cb8e28687b6980289",
    "update.py": "cc53339052628499caf7495df972c50c615882eccc0181ac904184cf9b2dd60a",
    "vocabulary.py": "12f6229394ca4d335f827eff5c26f047bdb1dfc738b8b66539b4c447a3425b16",
}


def digest(path: Path) -> str:
    """Of the text, whatever its line ends."""
    return hashlib.sha256(path.read_text(encoding="utf-8").encode()).hexdigest()


def test_sources_are_the_frozen_ones():
    assert {path.name: digest(path) for path in FOLDER.glob("*.py")} == SHA256
