"""Command sequences for the chip models, by hand and random."""

import random

from trirow_hw.sdram.chips import CHIPS
from trirow_sim.memory import Memory
from trirow_sim.sdram_chip import ChipModel, ChipPins, SdramViolation

CHIP = CHIPS["IS42S16160G-7"]
ALL = 1 << 10
NAMES = {
    "MODE": (0, 0, 0),
    "REFRESH": (0, 0, 1),
    "PRECHARGE": (0, 1, 0),
    "ACTIVATE": (0, 1, 1),
    "WRITE": (1, 0, 0),
    "READ": (1, 0, 1),
    "STOP": (1, 1, 0),
    "NOP": (1, 1, 1),
}


def pins(name="NOP", ba=0, a=0, **values):
    """Return the pins with a command; WRITE drives data."""
    ras_n, cas_n, we_n = NAMES[name]
    values.setdefault("dq_oe", int(name == "WRITE"))
    return ChipPins(ras_n=ras_n, cas_n=cas_n, we_n=we_n, ba=ba, a=a, **values)


STARTUP = [
    *[("NOP",)] * 10,
    ("PRECHARGE", 0, ALL),
    *[("NOP",)] * 2,
    ("REFRESH",),
    *[("NOP",)] * 6,
    ("REFRESH",),
    *[("NOP",)] * 6,
    ("MODE", 0, 0x20),
    *[("NOP",)] * 2,
]


def sequence(*commands, startup=True):
    """Return the pins of commands (a number is so many NOP), after the initialisation."""
    result = [pins(*command) for command in STARTUP] if startup else []
    for command in commands:
        if isinstance(command, int):
            result += [pins()] * command
        elif isinstance(command, ChipPins):
            result.append(command)
        else:
            result.append(pins(*command))
    return result


def play(cycles, chip=CHIP, clock_hz=100e6, startup_us=0.1, fill=None):
    """Run the model; return it, the data pins of each next cycle, and the violation or None."""
    memory = Memory(chip.capacity)
    if fill is not None:
        memory.data[: len(fill)] = fill
    model = ChipModel(chip, clock_hz, memory.data, startup_us=startup_us)
    seen = []
    try:
        for driven in cycles:
            model.step(driven)
            seen.append(model.dq)
    except SdramViolation as violation:
        return model, memory, seen, violation
    return model, memory, seen, None


def random_sequence(seed, chip, length, mistakes):
    """Return random commands; ``mistakes`` is the chance of a wait that is cut short."""
    dice = random.Random(seed)
    banks, open_rows = 1 << chip.bank_bits, {}
    result = sequence()

    def give(*command, wait=0, **values):
        result.append(pins(*command, **values))
        if dice.random() < mistakes:
            wait = dice.randrange(wait + 1)
        result.extend([pins(dqm=0)] * wait)

    since_refresh = len(result)
    while len(result) < length:
        bank = dice.randrange(banks)
        if len(result) - since_refresh > 600 and dice.random() > mistakes:
            give("PRECHARGE", bank, ALL, wait=8)
            since_refresh = len(result)
            give("REFRESH", wait=8)
            open_rows.clear()
        elif bank not in open_rows or dice.random() < mistakes / 30:
            give("ACTIVATE", bank, dice.randrange(3), wait=4)
            open_rows[bank] = True
            if dice.random() < mistakes:  # too early
                result.append(pins("READ", bank, 0))
                result.extend([pins()] * 4)
        elif dice.random() < 0.2:
            result.extend([pins()] * (8 if dice.random() > mistakes else dice.randrange(2)))
            give("PRECHARGE", bank, 0, wait=4)
            del open_rows[bank]
        else:
            for _ in range(dice.randrange(1, 9)):
                column = dice.randrange(8)
                if dice.random() < 0.5:
                    data, mask = dice.getrandbits(chip.data_bits), dice.randrange(4)
                    give("WRITE", bank, column, dq=data, dqm=mask)
                else:
                    give("READ", bank, column, wait=dice.choice((0, 0, 4)))
                    if dice.random() > mistakes / 30:
                        result.extend([pins(dqm=dice.randrange(4)), *[pins()] * 4])
            result.extend([pins()] * (3 if dice.random() > mistakes else 0))
    return result[:length]
