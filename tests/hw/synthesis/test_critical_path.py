from trirow_hw.synthesis.critical_path import critical_path


def at(cell, port, x, y):
    return {"cell": cell, "port": port, "loc": [x, y]}


def step(kind, begin, end, delay):
    return {"type": kind, "from": begin, "to": end, "delay": delay}


def test_words():
    register = at("board.core.array.sum_TRELLIS_FF_Q_3", "Q", 1, 1)
    multiplier = "board.core.post.product_MULT18X18D_P5"
    lut = "board.core.post.scaled_LUT4_Z_7_A_LUT4_Z"
    steps = [
        step("clk-to-q", register, register, 0.5),
        step("routing", register, at(multiplier, "A3", 4, 1), 1.5),
        step("logic", at(multiplier, "A3", 4, 1), at(multiplier, "P2", 4, 1), 4.0),
        step("routing", at(multiplier, "P2", 4, 1), at("carry$CCU2_COMB0", "B", 4, 2), 0.75),
        step("logic", at("carry$CCU2_COMB0", "B", 4, 2), at("carry$CCU2_COMB0", "FCO", 4, 2), 0.25),
        step(
            "routing", at("carry$CCU2_COMB0", "FCO", 4, 2), at("carry$CCU2_COMB1", "FCI", 4, 2), 0
        ),
        step("logic", at("carry$CCU2_COMB1", "FCI", 4, 2), at("carry$CCU2_COMB1", "F", 4, 2), 0.25),
        step("routing", at("carry$CCU2_COMB1", "F", 4, 2), at(lut, "C", 5, 2), 1.0),
        step("logic", at(lut, "C", 5, 2), at(lut, "F", 5, 2), 0.25),
        step("routing", at(lut, "F", 5, 2), at("top_led_TRELLIS_FF_Q", "DI", 5, 2), 0.125),
        step(
            "setup",
            at("top_led_TRELLIS_FF_Q", "DI", 5, 2),
            at("top_led_TRELLIS_FF_Q", "DI", 5, 2),
            0.25,
        ),
    ]
    path = critical_path(steps)
    assert (path.luts, path.carries, path.blocks, path.wires) == (1, 2, 1, 3)
    assert path.wire_ns == 1.5 + 0.75 + 1.0 + 0.125
    assert path.logic_ns == 0.5 + 4.0 + 0.25 + 0.25 + 0.25 + 0.25
    assert path.total_ns == path.wire_ns + path.logic_ns
    assert str(path) == (
        "from sum (port Q) of unit board.core.array through 1 LUT, 2 carry bits, 1 multiplier and "
        "3 wires, 5.5 ns logic, 3.4 ns wire, to top_led (port DI)"
    )


def test_register_to_register():
    begin, end = at("a_TRELLIS_FF_Q", "Q", 1, 1), at("unit.b_TRELLIS_FF_Q", "M", 9, 1)
    path = critical_path(
        [
            step("clk-to-q", begin, begin, 0.5),
            step("routing", begin, end, 2.0),
            step("setup", end, end, 0.0),
        ]
    )
    assert str(path) == (
        "from a (port Q) through 0 LUTs and 1 wire, 0.5 ns logic, 2.0 ns wire, to b (port M) of "
        "unit unit"
    )


def test_a_name_that_is_only_of_cells_is_kept():
    cell = at("$PACKER_GND", "F", 0, 0)
    assert critical_path([step("setup", cell, cell, 1.0)]).begin == "$PACKER_GND.F"
