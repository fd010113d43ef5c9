"""Stop the clock of pipelines while nothing moves in them: then there is nothing to evaluate."""

from __future__ import annotations

from collections.abc import Iterator

from amaranth.hdl import (
    Cat,
    ClockDomain,
    DomainRenamer,
    Elaboratable,
    Fragment,
    Module,
    Signal,
    Value,
)
from amaranth.lib.wiring import Component, In

__all__ = ["gate_pipelines"]


def gate_pipelines(
    m: Module, design: Elaboratable, platform: object, kind: type[Component], *, domain: str
) -> Value:
    """Elaborate a design as the submodule ``design``; its pipelines of a kind get their own clock.

    A pipeline is a component without feedback and without reset: what it gives depends on its
    inputs of the last ``latency`` cycles and on nothing else. When they have been the same for
    that long, no register in it changes at a clock edge, so the edge can be left out.

    Parameters
    ----------
    m : Module
        Gets the design, and the domain, which has no reset.
    design : Elaboratable
    platform : object
        What it is elaborated for.
    kind : Component class
        Kind of the pipelines, with an attribute ``latency``, cycles.
    domain : str
        Name of the pipelines' clock domain. Its edges must coincide with those of ``sync``.

    Returns
    -------
    Value
        Whether the edge at the end of this cycle must come.

    Raises
    ------
    ValueError
        If the design has no such pipeline.
    """
    fragment = Fragment.get(design, platform)
    m.submodules.design = fragment
    m.domains += ClockDomain(domain, reset_less=True)
    inputs: list[Value] = []
    for parent, index, pipeline in _find(fragment, kind):
        child, name, location = parent.subfragments[index]
        renamed = DomainRenamer({"sync": domain})(child)
        parent.subfragments[index] = (renamed, name, location)
        members = pipeline.signature.members.items()
        inputs += [
            Value.cast(getattr(pipeline, port)) for port, member in members if member.flow == In
        ]
    if not inputs:
        raise ValueError(f"the design has no {kind.__name__}")
    return _changed_lately(m, Cat(inputs), kind.latency, domain)


def _find(fragment: Fragment, kind: type[Component]) -> Iterator[tuple[Fragment, int, Component]]:
    """Find what components of a kind have become: parent, index in it, and the component."""
    for index, (child, _, _) in enumerate(fragment.subfragments):
        yield from _find(child, kind)
        for origin in child.origins or ():
            if isinstance(origin, kind):
                yield fragment, index, origin


def _changed_lately(m: Module, inputs: Value, latency: int, name: str) -> Value:
    """Return whether inputs have changed in this cycle or in the ``latency`` - 1 before it."""
    before = Signal(len(inputs), name=f"{name}_before")
    changed = Signal(name=f"{name}_changed")
    # At first the registers hold their reset values, which no inputs need give.
    left = Signal(range(latency + 1), init=latency, name=f"{name}_left")
    m.d.comb += changed.eq(inputs != before)
    m.d.sync += before.eq(inputs)
    with m.If(changed):
        m.d.sync += left.eq(latency - 1)
    with m.Elif(left != 0):
        m.d.sync += left.eq(left - 1)
    return changed | (left != 0)
