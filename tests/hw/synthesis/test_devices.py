from collections import Counter

from trirow_hw.synthesis.devices import DEVICES, Usage, netlist_usage


def test_netlist():
    cells = Counter(LUT4=10, CCU2C=3, TRELLIS_FF=7, MULT18X18D=2, DP16KD=4, TRELLIS_DPR16X4=5)
    usage = netlist_usage(cells, DEVICES["LFE5U-25F"])
    assert usage == {
        "luts": Usage(10 + 6 + 30, 24_288),
        "registers": Usage(7, 24_288),
        "dsps": Usage(2, 28),
        "block_rams": Usage(4, 56),
        "lut_rams": Usage(5, 3_036),
    }
    assert netlist_usage({}, DEVICES["LFE5U-85F"])["luts"] == Usage(0, 83_640)


def test_percent():
    assert Usage(7, 28).percent == 25.0
