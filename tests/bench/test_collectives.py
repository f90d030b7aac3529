from bench.collectives import Collective, collectives

HLO = """
  %all-gather.1 = f32[100,10]{1,0} all-gather(%p0), channel_id=1, dimensions={0}
  %s = (f32[25,10]{1,0}, f32[100,10]{1,0}) all-gather-start(%p0), channel_id=2
  %d = f32[100,10]{1,0} all-gather-done(%s)
  %r = (s32[8,2]{1,0}, pred[3]{0}) all-reduce(%a, %b), channel_id=3, to_apply=%sum
  ROOT %t = f32[] all-reduce-start(%c), channel_id=4, to_apply=%sum
  %g = f32[100,10]{1,0} gather(%p0, %p1), offset_dims={1}
"""


def test_every_collective_is_found_with_its_results():
    assert collectives(HLO) == [
        Collective("all-gather", (100, 10), 4000),
        Collective("all-gather", (100, 10), 4000),
        Collective("all-reduce", (8, 2), 64),
        Collective("all-reduce", (3,), 3),
        Collective("all-reduce", (), 4),
    ]
