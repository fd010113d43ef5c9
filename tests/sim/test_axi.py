import pytest

from trirow_sim.axi import AxiChecker, AxiMaster, AxiSlave, AxiViolation

AR = {"arvalid": 1, "araddr": 0x100, "arlen": 1, "arsize": 2}
AW = {"awvalid": 1, "awaddr": 0x100, "awlen": 1, "awsize": 2}
W = {"wvalid": 1, "wdata": 5, "wstrb": 15}
R = {"rvalid": 1, "rdata": 7}
B = {"bvalid": 1}

READ = (AR, {"arready": 1})
WRITE = [(AW, {"awready": 1}), (W, {"wready": 1}), ({**W, "wlast": 1}, {"wready": 1})]

VIOLATIONS = {
    "ar dropped": ([(AR, {}), ({}, {})], "cycle 1: AR: valid dropped before ready"),
    "ar changed": (
        [(AR, {}), ({**AR, "arlen": 2}, {"arready": 1})],
        "cycle 1: AR: payload changed from (256, 1, 2, 1) to (256, 2, 2, 1) before ready",
    ),
    "aw dropped": ([(AW, {}), ({}, {})], "cycle 1: AW: valid dropped before ready"),
    "aw changed": (
        [(AW, {}), ({**AW, "awaddr": 0x104}, {})],
        "cycle 1: AW: payload changed from (256, 1, 2, 1) to (260, 1, 2, 1) before ready",
    ),
    "w dropped": ([(W, {}), ({}, {})], "cycle 1: W: valid dropped before ready"),
    "w changed": (
        [({**AW, **W}, {"awready": 1}), ({**W, "wstrb": 7}, {"wready": 1})],
        "cycle 1: W: payload changed from (5, 15, 0) to (5, 7, 0) before ready",
    ),
    "r dropped": ([READ, ({}, R), ({}, {})], "cycle 2: R: valid dropped before ready"),
    "r changed": (
        [READ, ({}, R), ({"rready": 1}, {**R, "rdata": 8})],
        "cycle 2: R: payload changed from (7, 0, 0) to (8, 0, 0) before ready",
    ),
    "b dropped": ([*WRITE, ({}, B), ({}, {})], "cycle 4: B: valid dropped before ready"),
    "b changed": (
        [*WRITE, ({}, B), ({}, {**B, "bresp": 2})],
        "cycle 4: B: payload changed from (0,) to (2,) before ready",
    ),
    "ar size": ([({**AR, "arsize": 3}, {})], "cycle 0: AR: size must be 2, not 3"),
    "aw size": ([({**AW, "awsize": 0}, {})], "cycle 0: AW: size must be 2, not 0"),
    "ar type": ([({**AR, "arburst": 2}, {})], "cycle 0: AR: burst type must be 1 (INCR), not 2"),
    "aw type": ([({**AW, "awburst": 0}, {})], "cycle 0: AW: burst type must be 1 (INCR), not 0"),
    "ar unaligned": (
        [({**AR, "araddr": 0x102}, {})],
        "cycle 0: AR: address 0x102 is not aligned to 4 bytes",
    ),
    "aw unaligned": (
        [({**AW, "awaddr": 0x101}, {})],
        "cycle 0: AW: address 0x101 is not aligned to 4 bytes",
    ),
    "ar length": (
        [({**AR, "arlen": 256}, {})],
        "cycle 0: AR: length must be from 0 to 255, not 256",
    ),
    "ar long": (
        [({**AR, "arlen": 128}, {})],
        "cycle 0: AR: burst of 516 bytes, at most 512 allowed",
    ),
    "aw long": (
        [({**AW, "awlen": 255}, {})],
        "cycle 0: AW: burst of 1024 bytes, at most 512 allowed",
    ),
    "ar boundary": (
        [({**AR, "araddr": 0xFFC}, {})],
        "cycle 0: AR: burst of 8 bytes at 0xffc crosses 4 KB",
    ),
    "aw boundary": (
        [({**AW, "awaddr": 0x1E04, "awlen": 127}, {})],
        "cycle 0: AW: burst of 512 bytes at 0x1e04 crosses 4 KB",
    ),
    "w before aw": (
        [(W, {"wready": 1})],
        "cycle 0: W: data before its address, or more beats than promised",
    ),
    "w too many": (
        [*WRITE, (W, {"wready": 1})],
        "cycle 3: W: data before its address, or more beats than promised",
    ),
    "wlast early": (
        [({**AW, **W, "wlast": 1}, {"awready": 1, "wready": 1})],
        "cycle 0: W: WLAST up with 1 beats to come",
    ),
    "wlast missing": (
        [*WRITE[:2], (W, {"wready": 1})],
        "cycle 2: W: WLAST missing at the last beat",
    ),
    "r unasked": ([({}, R)], "cycle 0: R: data that nobody asked for"),
    "r too early": ([(AR, {"arready": 1, **R})], "cycle 0: R: data that nobody asked for"),
    "rlast early": (
        [READ, ({"rready": 1}, {**R, "rlast": 1})],
        "cycle 1: R: RLAST up with 1 beats to come",
    ),
    "rlast missing": (
        [READ, ({"rready": 1}, R), ({"rready": 1}, R)],
        "cycle 2: R: RLAST missing at the last beat",
    ),
    "b too early": (
        [*WRITE[:2], ({**W, "wlast": 1}, {"wready": 1, **B})],
        "cycle 2: B: response before the last beat of its burst",
    ),
    "b twice": (
        [*WRITE, ({"bready": 1}, B), ({"bready": 1}, B)],
        "cycle 4: B: response before the last beat of its burst",
    ),
    "reads outstanding": ([READ] * 17, "cycle 16: AR: 17 bursts outstanding, at most 16 allowed"),
    "writes outstanding": (
        [*WRITE, *WRITE[:1] * 16],
        "cycle 18: AW: 17 bursts outstanding, at most 16 allowed",
    ),
}


def check(checker, cycles):
    for master, slave in cycles:
        checker.check(AxiMaster(**master), AxiSlave(**slave))


@pytest.mark.parametrize("name", VIOLATIONS)
def test_violation(name):
    cycles, message = VIOLATIONS[name]
    checker = AxiChecker(4)
    check(checker, cycles[:-1])
    with pytest.raises(AxiViolation) as caught:
        check(checker, cycles[-1:])
    assert str(caught.value) == message
    error = caught.value
    assert f"cycle {error.cycle}: {error.channel}: {error.rule}" == message


def test_legal():
    checker = AxiChecker(4)
    assert checker.idle
    check(checker, [(AR, {}), READ, ({}, R), ({"rready": 1}, R)])
    assert not checker.idle
    check(checker, [({"rready": 1}, {**R, "rlast": 1})])
    assert checker.idle
    # Data may be valid before the address is, and be taken in the same cycle.
    check(checker, [(W, {}), ({**AW, **W}, {"awready": 1, "wready": 1})])
    check(checker, [({**W, "wlast": 1}, {"wready": 1}), ({}, B), ({"bready": 1}, B)])
    assert checker.idle
    assert checker.cycle == 10
    assert (checker.read_bursts, checker.read_beats) == (1, 2)
    assert (checker.write_bursts, checker.write_beats) == (1, 2)


def test_limits():
    checker = AxiChecker(4, max_burst_bytes=1024, max_outstanding=1)
    check(checker, [({**AR, "araddr": 0xC00, "arlen": 255}, {"arready": 1})])
    with pytest.raises(AxiViolation, match="2 bursts outstanding, at most 1 allowed"):
        check(checker, [READ])


def test_waiting_is_not_outstanding():
    checker = AxiChecker(4, max_outstanding=1)
    last = {**R, "rlast": 1}
    one = {**AR, "arlen": 0}
    check(checker, [(one, {"arready": 1}), (one, {}), ({**one, "rready": 1}, last)])
    check(checker, [(one, {"arready": 1})])


def test_wrong_bus_bytes():
    with pytest.raises(ValueError, match=r"^bus_bytes must be a power of two .* not 3$"):
        AxiChecker(3)
